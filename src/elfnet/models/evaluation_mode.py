"""Evaluation mode for a while, and then whatever mode each part was in before."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluation_mode(network: nn.Module) -> Iterator[None]:
    """Parts that were frozen in evaluation mode on purpose stay so afterwards, whatever happens in between."""
    before = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training
