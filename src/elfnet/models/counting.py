"""Counting multiply-adds where torch's counter sees none: attention on a CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count


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
