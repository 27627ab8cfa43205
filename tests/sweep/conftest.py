"""Sweeps: the marker of those tests that need a real Ray."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ray: on a real local Ray, where it is installed")
