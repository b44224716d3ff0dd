"""Fixtures and helpers that more than one folder of tests uses; loaded by tests/conftest.py."""
