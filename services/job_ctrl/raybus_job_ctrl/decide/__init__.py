"""Decisions about RayJobs. Pure: no clock, no chance, no input or output; the time is an argument.

`pipeline` is the way in; table.py has the states, states/ what is done in each, modes/ how a job gets to Ray, verdict.py what the
evidence means.
"""
