"""What a network costs, in multiply-adds.

The convention, stated once: one multiply-add counts 1; convolutions and matrix products count, batch norm,
activations, pooling and additions do not. torch's own counter does the counting and reports 2 per multiply-add.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from elfnet.models.layers import evaluation_mode
from elfnet.models.staged import StagedNetwork


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Queries times keys, and weights times values; 2 per multiply-add, as torch counts."""
    return int(sdpa_flop_count(query, key, value))  # type: ignore[no-untyped-call]


# torch has formulas for the kernels of GPUs only.
CPU_ATTENTION = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention}


@contextmanager
def counting() -> Iterator[FlopCounterMode]:
    """torch's counter, knowing attention on a CPU, and with transformer layers run part by part instead of as one
    kernel that hides its products.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with FlopCounterMode(display=False, custom_mapping=CPU_ATTENTION) as counter:
            yield counter
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


@dataclass(frozen=True)
class NetworkCost:
    """Multiply-adds for one example, stage by stage and head by head.

    Attributes:
        experts: how many of the last exits are experts; the first of them ends the plain backbone.
    """

    stages: tuple[int, ...]
    heads: tuple[int, ...]
    experts: int = 1

    @property
    def plain(self) -> int:
        """The backbone without exits: all stages and the last head; of several experts, the first one only."""
        last = len(self.stages) - self.experts
        return sum(self.stages[: last + 1]) + self.heads[last]

    @property
    def to_exit(self) -> tuple[int, ...]:
        """Running up to and including each exit, every head on the way included."""
        return tuple(sum(self.stages[: k + 1]) + sum(self.heads[: k + 1]) for k in range(len(self.heads)))

    @property
    def relative(self) -> tuple[float, ...]:
        """`to_exit` relative to the plain backbone; the last is above 1 by what early heads and experts cost."""
        return tuple(cost / self.plain for cost in self.to_exit)


def _multiply_adds(module: nn.Module, features: Any) -> tuple[int, Any]:
    with counting() as counter:
        output = module(features)
    return counter.get_total_flops() // 2, output


@torch.no_grad()
def count_cost(network: StagedNetwork, image_shape: tuple[int, int, int]) -> NetworkCost:
    """Count each stage and each head once on one image of `image_shape` (channels, height, width).

    One real image of zeros is run in evaluation mode, so batch norm learns nothing from it.
    """
    features: Any = torch.zeros(1, *image_shape, device=next(network.parameters()).device)
    stages, heads = [], []
    with evaluation_mode(network):
        for stage, head in network.pairs():
            stage_cost, features = _multiply_adds(stage, features)
            head_cost, _ = _multiply_adds(head, features)
            stages.append(stage_cost)
            heads.append(head_cost)
    return NetworkCost(tuple(stages), tuple(heads), network.experts)
