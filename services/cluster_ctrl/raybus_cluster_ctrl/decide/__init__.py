"""Decisions about RayClusters. Pure: no clock, no chance, no input or output; the time is an argument."""
