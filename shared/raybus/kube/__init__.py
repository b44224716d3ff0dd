"""Kubernetes: configuration, one raw JSON client, errors by reason, list and watch, events.

Only this package talks to an API server. Objects are plain dicts as the server sent them.
"""
