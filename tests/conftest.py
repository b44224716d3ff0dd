"""Fixtures for all tests stand in tests/support, one module per outside world."""

from hypothesis import HealthCheck, settings

pytest_plugins = ("support.kube", "support.nats", "support.buses", "support.operators")

# How long an example takes says something about the machine, not about the code.
settings.register_profile("raybus", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("raybus")
