"""What the kinds are: their schemas, defaults, rules and printed columns.

What may live here: everything that differs from kind to kind. Verbs (raybus_localkube.server) ask for it through Strategy.
"""
