"""What every part of the campaign returns, and how bytes are damaged."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MAX_FAILURES = 20
"""Failures that are described; all are counted."""


@dataclass
class Outcomes:
    """What happened in the cases of one part.

    Attributes:
        counts: number of cases by outcome; the outcome "FAILED" is what must not happen.
        failures: one line per failure, with what is needed to repeat it.
        figures: other numbers that were measured.
    """

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def add(self, outcome: str) -> None:
        """Count a case that ended as it may."""
        self.counts[outcome] += 1

    def fail(self, what: str) -> None:
        """Count a case that ended as it must not."""
        self.counts["FAILED"] += 1
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(" ".join(what.split())[:500])

    def to_dict(self) -> dict[str, Any]:
        """The outcomes as plain data for JSON."""
        found = {"cases": self.counts.total(), "outcomes": dict(sorted(self.counts.items())), "failures": self.failures}
        return {**found, "figures": self.figures} if self.figures else found


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage bytes: flip bits, overwrite, cut off, remove, insert, repeat or swap parts."""
    data = bytearray(content)
    for _ in range(1 + int(rng.integers(3))):
        place = int(rng.integers(len(data) + 1))
        length = int(rng.integers(1, 17))
        match int(rng.integers(7)):
            case 0 | 1 if place < len(data):
                data[place] ^= 1 << int(rng.integers(8))
            case 2:
                data[place : place + length] = rng.integers(0, 256, length, dtype=np.uint8).tobytes()
            case 3:
                del data[place:]
            case 4:
                del data[place : place + length]
            case 5:
                data[place:place] = rng.integers(0, 256, length, dtype=np.uint8).tobytes()
            case _:
                other = int(rng.integers(len(data) + 1))
                data[place:place] = data[other : other + length]
    return bytes(data)
