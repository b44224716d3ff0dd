"""NATS: everything Raybus says to it and hears from it. docs/contracts.md is the contract; nothing here knows Kubernetes or Ray.

`transport` is the port, `nats` and `memory` are its two implementations; all other modules work on the port alone.
"""
