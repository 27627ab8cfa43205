"""Measured cost of stages and heads: their time on one machine, used instead of multiply-adds."""

# Shapes: E exits

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable


@dataclass(frozen=True, kw_only=True)
class MeasuredCost:
    """Seconds per image of each stage and head.

    Attributes:
        stages: seconds of each stage, one per exit.
        heads: seconds of each head, one per exit.
        plain: seconds of the whole backbone without early exits.
        backend: what computed them, such as `onnxruntime`.
        batch: batch size of the measurement. In use, later stages get smaller batches, which take slightly more time
            per image.
        threads: number of threads of the backend.
    """

    stages: tuple[float, ...]
    heads: tuple[float, ...]
    plain: float
    backend: str
    batch: int
    threads: int

    def __post_init__(self) -> None:
        seconds = (*self.stages, *self.heads, self.plain)
        if not self.stages or len(self.stages) != len(self.heads):
            raise RequestError(
                f"measured cost: found {len(self.stages)} stages and {len(self.heads)} heads; give one of each per exit"
            )
        if not all(math.isfinite(value) and value > 0 for value in seconds):
            raise RequestError(f"measured cost: times must be above 0, found {min(seconds)}; measure again")

    @property
    def unit(self) -> str:
        """Unit of cost, as tables show it."""
        return f"time relative to the plain backbone ({self.backend}, batch {self.batch}, {self.threads} threads)"

    def applied_to(self, table: ExitTable) -> ExitTable:
        """Return the table with these costs instead of its own."""
        if table.exits != len(self.stages):
            raise RequestError(
                f"measured cost is for {len(self.stages)} exits, the exit table has {table.exits}; measure this model"
            )
        head_E = np.array(self.heads) / self.plain
        return replace(table, cost_E=np.cumsum(np.array(self.stages) / self.plain + head_E), head_cost_E=head_E)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Read the content that `to_dict` wrote.

        Raises:
            RequestError: a field is missing, unknown or invalid.
        """
        if not isinstance(content, Mapping) or set(content) != set(cls.__dataclass_fields__):
            raise RequestError(f"measured cost must have exactly the fields {', '.join(cls.__dataclass_fields__)}")
        numbers = {name: tuple(float(value) for value in content[name]) for name in ("stages", "heads")}
        return cls(**{**content, **numbers})
