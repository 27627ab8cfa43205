"""Measured cost of stages and heads: their time on one machine, and budgets in milliseconds.

Measured times replace multiply-adds as the cost of a family, or stand beside them.
"""

# Shapes: E exits

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from elfnet.errors import RequestError, WorkError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.exits.policy import Policy, cost_to_exit
from elfnet.run.json_file import read_json, write_json

_MILLISECONDS = re.compile(r"\s*([0-9.eE+-]+)\s*ms\s*")
MEASURE_AGAIN = "measure again with 'elfnet bench inference RUN --costs FILE'"


@dataclass(frozen=True)
class TimeBudget:
    """A budget in time: the mean milliseconds per image. Its text is a number with the unit, such as `5ms`."""

    milliseconds: float

    def __str__(self) -> str:
        return f"{self.milliseconds:g}ms"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read a number with the unit `ms`; None if the text is something else.

        Raises:
            RequestError: the number is not above 0.
        """
        found = _MILLISECONDS.fullmatch(text)
        if found is None:
            return None
        try:
            milliseconds = float(found[1])
        except ValueError:
            return None
        if not 0 < milliseconds < math.inf:
            raise RequestError(f"budget {text.strip()} must be above 0; give milliseconds per image, such as 5ms")
        return cls(milliseconds)


def parse_budget(text: str) -> float | TimeBudget:
    """Read a budget: a mean cost such as `0.6`, or the mean milliseconds per image such as `5ms`.

    Raises:
        RequestError: it is neither.
    """
    timed = TimeBudget.parse(text)
    if timed is not None:
        return timed
    try:
        cost = float(text)
    except ValueError:
        cost = math.nan
    if not math.isfinite(cost):
        raise RequestError(f"budget {text!r} is not a number; give a mean cost such as 0.6, or a time such as 5ms")
    return cost


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
        return f"time relative to the plain backbone ({self.how})"

    @property
    def how(self) -> str:
        """How the times were measured, in a few words."""
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}" if self.threads else "the backend's threads"
        return f"{self.backend}, batch {self.batch}, {threads}"

    def milliseconds(self, policy: Policy, exit_share: Sequence[float]) -> float:
        """Return the mean time per image if these shares of the images take each exit under a policy."""
        self._require_exits(policy.exits)
        seconds_E = cost_to_exit(np.cumsum(np.add(self.stages, self.heads)), self.heads, policy)
        return float(1e3 * (np.array(exit_share) @ seconds_E))

    def _require_exits(self, exits: int) -> None:
        if exits != len(self.stages):
            raise RequestError(f"measured cost is for {len(self.stages)} exits, the model has {exits}; {MEASURE_AGAIN}")

    def applied_to(self, table: ExitTable) -> ExitTable:
        """Return the table with these costs instead of its own."""
        self._require_exits(table.exits)
        head_E = np.array(self.heads) / self.plain
        return replace(table, cost_E=np.cumsum(np.array(self.stages) / self.plain + head_E), head_cost_E=head_E)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def save(self, path: Path) -> None:
        """Write the times atomically, with a hash of their content."""
        write_json(path, self.to_dict())

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read a file that `save` wrote.

        Raises:
            WorkError: the file is missing or damaged.
        """
        try:
            return cls.from_dict(read_json(path, way_out=MEASURE_AGAIN))
        except (RequestError, TypeError, ValueError) as error:
            raise WorkError(f"{path} has no measured costs ({error}); {MEASURE_AGAIN}") from error

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
