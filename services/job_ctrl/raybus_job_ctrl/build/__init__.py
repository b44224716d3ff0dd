"""Objects and texts that a RayJob leads to, made from its spec. Pure: no clock, no chance, no input or output."""
