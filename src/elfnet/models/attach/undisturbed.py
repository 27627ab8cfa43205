"""Running a model, in training mode too, without leaving a trace in it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Modes, buffers (batch-norm statistics) and the random state are afterwards what they were before."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    devices = {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}
    try:
        with torch.random.fork_rng(devices=sorted(device.index or 0 for device in devices)):
            yield
    finally:
        for module, training in modes:
            module.training = training
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
