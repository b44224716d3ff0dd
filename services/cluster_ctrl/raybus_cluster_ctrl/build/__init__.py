"""Objects that a RayCluster leads to, made from its spec. Pure: no clock, no chance, no input or output."""
