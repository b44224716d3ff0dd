"""Custom resources: definitions, their schemas, and what follows from them.

What may live here: pruning, defaulting, validation, CEL, printer columns and the life of a definition.
"""
