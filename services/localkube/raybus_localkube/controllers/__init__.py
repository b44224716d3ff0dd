"""Kubernetes' own controllers, as far as Ray needs them: garbage collector, Job, EndpointSlice, Endpoints, namespaces, accounts.

What may live here: one module or folder per controller, each a pure state machine (controller.py says of what shape), and the
manager that watches, hands out keys and sends what was decided. They are ordinary API clients: they run in the API server's
process, or against any other API server. Only manager.py, served.py and run.py await; only run.py reads the clock.
"""
