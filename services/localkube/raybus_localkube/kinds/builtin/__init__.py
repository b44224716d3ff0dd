"""The built-in kinds that localkube serves.

What may live here: one module per kind or family, each with its defaults, rules and printed columns. catalog.py lists them.
"""
