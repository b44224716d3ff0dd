"""Fixtures for all tests stand in tests/support, one module per outside world."""

pytest_plugins = ("support.kube", "support.nats", "support.buses", "support.operators")
