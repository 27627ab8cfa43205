"""How long 1,000 operating points take from a table of 10,000 examples x 4 exits x 10 classes (demand: under 1 s).

Run: python benchmarks/bench_operating_points.py
"""

from collections.abc import Callable
from statistics import median
from time import perf_counter

import numpy as np

from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.metrics import measure
from elfnet.evaluate.policy_replay import compute_confidences, replay
from elfnet.evaluate.trade_off import sweep, sweep_uniform
from elfnet.exits.policy import Policy
from timing import write_results

EXAMPLES, EXITS, CLASSES, POINTS, REPEATS = 10_000, 4, 10, 1_000, 7


def synthetic_table(rng: np.random.Generator) -> ExitTable:
    """A table whose later exits are more often right, as a trained network's are."""
    labels_N = rng.integers(CLASSES, size=EXAMPLES)
    logits_NEC = rng.normal(size=(EXAMPLES, EXITS, CLASSES)).astype(np.float32)
    logits_NEC[np.arange(EXAMPLES), :, labels_N] += np.linspace(1.0, 4.0, EXITS, dtype=np.float32)
    return ExitTable(
        logits_NEC=logits_NEC,
        labels_N=labels_N,
        cost_E=np.array([0.0750, 0.4861, 0.8373, 1.1628]),
        plain_multiply_adds=68_900_000,
        class_counts_C=np.array([5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]),
        class_names=tuple(str(c) for c in range(CLASSES)),
        split="calibration",
        checkpoint_sha256="synthetic",
        confidence_scale=1.0,
        many_above=100,
        few_below=20,
    )


def median_seconds(work: Callable[[], object]) -> float:
    """Median of several runs after one that warms the caches."""
    work()
    seconds = []
    for _ in range(REPEATS):
        start = perf_counter()
        work()
        seconds.append(perf_counter() - start)
    return median(seconds)


def main() -> None:
    rng = np.random.default_rng(0)
    table = synthetic_table(rng)
    thresholds_PT = rng.uniform(0.1, 1.0, size=(POINTS, EXITS - 1))
    uniform_P = np.linspace(0.1, 1.0, POINTS)
    derived = compute_confidences(table)
    scale = derived.confidence_scale

    def one_by_one() -> None:
        for thresholds_T in thresholds_PT:
            measure(table, replay(derived, Policy("point", tuple(thresholds_T.tolist()), scale)))

    seconds = {
        "derive (softmax of the whole table)": median_seconds(lambda: compute_confidences(table)),
        "derive + 1,000 points, thresholds per exit": median_seconds(
            lambda: sweep(compute_confidences(table), thresholds_PT)
        ),
        "derive + 1,000 points, one threshold": median_seconds(
            lambda: sweep_uniform(compute_confidences(table), uniform_P)
        ),
        "1,000 points replayed one by one, all metrics": median_seconds(one_by_one),
    }
    write_results(
        "operating_points",
        {
            "what": f"{POINTS:,} operating points from {EXAMPLES:,} examples x {EXITS} exits x {CLASSES} classes",
            "median_seconds": {name: round(value, 5) for name, value in seconds.items()},
            "repeats": REPEATS,
            "aim": "1,000 points in under 1 s",
        },
    )


if __name__ == "__main__":
    main()
