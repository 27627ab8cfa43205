"""The cost of a network in multiply-adds, per stage and per head.

The convention: one multiply-add counts 1. Convolutions and matrix products count; batch norm, activations, pooling and
additions do not. The counter is torch's own, which reports 2 per multiply-add.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from elfnet.models.staged import StagedNetwork, evaluation_mode


def _attention_flops(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """The cost of attention: queries times keys, and weights times values; 2 per multiply-add, as torch counts."""
    return int(sdpa_flop_count(query, key, value))  # type: ignore[no-untyped-call]


# torch has formulas for the attention kernels of GPUs only.
CPU_ATTENTION = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops}


@contextmanager
def flop_counter() -> Iterator[FlopCounterMode]:
    """torch's FLOP counter, extended to count attention on a CPU.

    Transformer layers are run part by part, since the fused kernel hides its matrix products from the counter.
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
    """The multiply-adds of a network for one example.

    Attributes:
        stages: the cost of each stage.
        heads: the cost of each head.
        experts: how many of the last exits are experts; 1 for a network without experts.
    """

    stages: tuple[int, ...]
    heads: tuple[int, ...]
    experts: int = 1

    @property
    def plain(self) -> int:
        """The cost of the backbone without early exits: all stages and the last head; of experts, the first only."""
        last = len(self.stages) - self.experts
        return sum(self.stages[: last + 1]) + self.heads[last]

    @property
    def to_exit(self) -> tuple[int, ...]:
        """The cost up to and including each exit, with all heads before it."""
        return tuple(sum(self.stages[: k + 1]) + sum(self.heads[: k + 1]) for k in range(len(self.heads)))

    @property
    def relative(self) -> tuple[float, ...]:
        """`to_exit` relative to `plain`; the last value is above 1, by the cost of early heads and experts."""
        return tuple(cost / self.plain for cost in self.to_exit)


def costly_exits(cost: NetworkCost) -> list[str]:
    """Warnings about early exits that save nothing: reaching one, even without earlier heads, costs the whole backbone.

    Such an exit only adds to the cost of the images that pass it.
    """
    warnings = []
    for k in range(len(cost.stages) - cost.experts):
        alone = sum(cost.stages[: k + 1]) + cost.heads[k]
        if alone >= cost.plain:
            warnings.append(
                f"exit {k + 1} alone costs {alone / cost.plain:.2f} of the plain backbone, so it cannot save anything; "
                "use a cheaper head: model.head_filters or model.exit_head in a recipe, head='mean' in attach_exits"
            )
    return warnings


@torch.no_grad()
def count_cost(network: StagedNetwork, image_shape: tuple[int, int, int]) -> NetworkCost:
    """Count the multiply-adds of each stage and each head for one image.

    The network is run on an image of zeros in evaluation mode, so its batch-norm statistics do not change.

    Args:
        image_shape: (channels, height, width).
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


def _multiply_adds(module: nn.Module, features: Any) -> tuple[int, Any]:
    with flop_counter() as counter:
        output = module(features)
    return counter.get_total_flops() // 2, output
