"""Two hosts for every test, or a reason why there are none."""

import os
from collections.abc import Iterator

import pytest
from network_hosts import CABLE, Host, reason_without_hosts, two_hosts


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    """Two hosts that reach each other."""
    reason = reason_without_hosts()
    if reason is not None:
        pytest.skip(reason)
    with two_hosts() as made:
        yield made


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment of commands; gloo must be told its interface, as these hosts have no names of their own."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": CABLE}
