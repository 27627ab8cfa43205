"""Fitting the whole family of operating points, and how time and memory grow with the number of examples."""

import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

from elfnet.calibrate.family_request import FamilyRequest
from elfnet.calibrate.fit_points import fit_family
from elfnet.evaluate.exit_table import ExitTable
from timing import write_results

SEARCH = tuple(round(0.5 + 0.05 * i, 2) for i in range(10))
SIZES = ((10_000, 4), (10_000, 5), (100_000, 5), (1_000_000, 5))
COSTS = {4: ([0.075, 0.486, 0.837, 1.163], [0.069, 0.069, 0.026, 0.0]), 5: ([0.1, 0.35, 0.6, 0.85, 1.1], [0.03] * 5)}


def synthetic_table(examples: int, exits: int, classes: int = 10) -> ExitTable:
    """Later exits are more often right; their errors have much in common, as those of a network do."""
    rng = np.random.default_rng(0)
    labels_N = rng.integers(classes, size=examples)
    shared_NC = rng.normal(size=(examples, classes)).astype(np.float32)
    own_NEC = rng.normal(size=(examples, exits, classes)).astype(np.float32)
    logits_NEC = shared_NC[:, None] + 0.5 * own_NEC
    logits_NEC[np.arange(examples), :, labels_N] += np.linspace(1.0, 4.0, exits, dtype=np.float32)
    cost, head_cost = COSTS[exits]
    return ExitTable(
        logits_NEC=logits_NEC,
        labels_N=labels_N,
        cost_E=np.array(cost),
        head_cost_E=np.array(head_cost),
        plain_multiply_adds=68_900_000,
        class_counts_C=np.array([5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]),
        class_names=tuple(str(c) for c in range(classes)),
        split="calibration",
        checkpoint_sha256="synthetic",
        confidence_scale=1.0,
        many_above=100,
        few_below=20,
    )


def measure(examples: int, exits: int) -> dict[str, Any]:
    table = synthetic_table(examples, exits)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, worked = time.perf_counter(), time.process_time()
    family = fit_family(table, FamilyRequest(search=SEARCH))
    seconds, processor = time.perf_counter() - began, time.process_time() - worked
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "examples": examples,
        "exits": exits,
        "points": len(family.points),
        "seconds": round(seconds, 2),
        "processor_seconds": round(processor, 2),
        "megabytes_beside_the_table": round((peak - before) / 1024),
        "table_megabytes": round(table.logits_NEC.nbytes / 2**20),
    }


def main() -> None:
    # One process each, so that the memory of one does not hide that of the next.
    numbers: list[dict[str, float]] = []
    for examples, exits in SIZES:
        words = [sys.executable, __file__, str(examples), str(exits)]
        answer = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        numbers.append({key: float(value) for key, value in (part.split("=") for part in answer.split())})
        # After every size: the largest takes minutes, and an interruption must not lose the others.
        write_results(
            "family",
            {
                "what": "all rules: line search, thresholds per exit, floors, risk control, geometric",
                "sizes": numbers,
                "aim": "10,000 examples under 5 s; time and memory linear in the examples",
            },
        )


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(*(f"{key}={value}" for key, value in measure(int(sys.argv[1]), int(sys.argv[2])).items()))
    else:
        main()
