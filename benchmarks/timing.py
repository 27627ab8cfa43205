"""Timing several variants side by side in one run, so that a shared, noisy machine disturbs all of them alike."""

import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from elfnet.train.machine import hardware, package_versions

RESULTS = Path(__file__).parent / "results"


def interleaved(
    variants: Mapping[str, Callable[[], object]], *, rounds: int, warmup: int = 2
) -> dict[str, list[float]]:
    """Seconds of each call: every round runs every variant once, after `warmup` rounds that are not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(warmup + rounds):
        for name, call in variants.items():
            began = time.perf_counter()
            call()
            if turn >= warmup:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def ratio(seconds: Mapping[str, list[float]], slow: str, fast: str) -> dict[str, float]:
    """Median over rounds of slow / fast, with the quartiles: neighbours in time are compared with each other."""
    ratios = [a / b for a, b in zip(seconds[slow], seconds[fast], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {"median": round(middle, 3), "quartile_low": round(low, 3), "quartile_high": round(high, 3)}


def write_results(name: str, results: Mapping[str, Any]) -> None:
    """Print, and keep under benchmarks/results/ with what they were measured on."""
    environment = {"versions": package_versions(), "hardware": hardware().to_json()}
    command = f"python benchmarks/bench_{name}.py"
    content = {"command": command, **results, "environment": environment}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
    print(json.dumps(dict(results), indent=2))
