"""A controller on a stream whose mix drifts, against the operating point that was right at the start.

    python benchmarks/simulate_controller.py [RUN]

Examples are drawn from the exit table of the test split of RUN; operating points are fitted on its calibration split.
Without RUN a synthetic table is used. The mix goes from that of the test split to hard examples, on to easy ones and
back; hard is what has low confidence at the first exit. What each operating point does with an example is what
`replay` says. Labels are read only to report accuracy. For the latency controller durations are modelled: requests of 8
images take 10 ms per unit of mean cost with lognormal noise of 5 %, and 1.3 times that in the third quarter.
"""

# Shapes: N examples of a batch, T examples of the stream, R requests of a batch

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drifting_stream import BATCH, LENGTH, Stream, make_stream, run, synthetic_table
from elfnet.evaluate.exit_table import ExitTable
from elfnet.inference.controller.controllers import BatteryBudget, BatteryController, CostController, LatencyController
from elfnet.inference.controller.ladder import Ladder
from elfnet.inference.controller.target import ControlSettings
from timing import write_results

BLOCK, SEED = 2_000, 0
TARGETS = (0.5, 0.6, 0.8)
REQUEST = 8
"""Images of a request whose duration is held."""


def held(cost_T: NDArray[np.float64], target_T: NDArray[np.float64], accuracy: float) -> dict[str, float]:
    """How well the means of blocks of examples keep to the target, relative to the plain backbone."""
    deviation = (cost_T - target_T).reshape(-1, BLOCK).mean(axis=1)
    return {
        "mean_cost": round(float(cost_T.mean()), 4),
        "mean_absolute_deviation": round(float(np.abs(deviation).mean()), 4),
        "largest_excess": round(float(deviation.max()), 4),
        "accuracy": round(accuracy, 4),
    }


def hold_cost(stream: Stream, target: float) -> dict[str, Any]:
    target_T = np.full(LENGTH, target)
    fixed = stream.family.for_budget(target).name
    controller = CostController(stream.family, target)
    controlled = run(stream, lambda: controller.operating_point, lambda _, cost_N: controller.observe(cost_N))
    return {
        "target": target,
        "fixed": {"point": fixed, **held(target_T=target_T, **_named(run(stream, lambda: fixed, lambda *_: None)))},
        "controlled": {
            **held(target_T=target_T, **_named(controlled)),
            "moves": controller.state.moves,
            "changes_detected": controller.state.changes,
            "windows": controller.state.windows,
        },
    }


def stay_put(stream: Stream, target: float, rng: np.random.Generator) -> dict[str, Any]:
    """The same length drawn from the table as it is: what the controller does when nothing drifts."""
    examples = len(next(iter(stream.cost_PN.values())))
    still = replace(stream, drawn_T=rng.integers(examples, size=LENGTH))
    controller = CostController(stream.family, target)
    answer = run(still, lambda: controller.operating_point, lambda _, cost_N: controller.observe(cost_N))
    return {
        "target": target,
        **held(target_T=np.full(LENGTH, target), **_named(answer)),
        "moves": controller.state.moves,
        "changes_detected": controller.state.changes,
    }


def drift_again(stream: Stream, target: float, times: int) -> dict[str, Any]:
    """The same drift many times over with one controller: the waits that it learns must not make it sluggish."""
    controller = CostController(stream.family, target)
    passes = []
    for _ in range(times):
        before = controller.state.moves
        answer = run(stream, lambda: controller.operating_point, lambda _, cost_N: controller.observe(cost_N))
        deviation = held(target_T=np.full(LENGTH, target), **_named(answer))["mean_absolute_deviation"]
        passes.append({"mean_absolute_deviation": deviation, "moves": controller.state.moves - before})
    return {"target": target, "times": times, "first": passes[0], "last": passes[-1]}


def hold_battery(stream: Stream) -> dict[str, Any]:
    """The battery falls from 100 to 10 percent over the stream, read to one percent, with a jitter of one."""
    table = {20.0: 0.45, 80.0: 1.0}
    controller, ideal = BatteryController(stream.family, table, 100.0), BatteryBudget(table, hysteresis=0.0)
    jitter = np.random.default_rng(SEED).integers(-1, 2, size=LENGTH // BATCH + 1)

    def level(start: int) -> float:
        return float(np.clip(round(100 - 90 * start / LENGTH) + jitter[start // BATCH], 0, 100))

    def report(start: int, cost_N: NDArray[np.float64]) -> None:
        controller.set_battery(level(start))
        controller.observe(cost_N)

    answer = run(stream, lambda: controller.operating_point, report)
    budget_T = np.repeat([ideal.at(100 - 90 * start / LENGTH) for start in range(0, LENGTH, BATCH)], BATCH)
    return {
        "table": {f"{level:g} %": budget for level, budget in table.items()},
        "mean_budget": round(float(budget_T.mean()), 4),
        "controlled": {**held(target_T=budget_T, **_named(answer)), "moves": controller.state.moves},
    }


def hold_latency(stream: Stream, target_ms: float) -> dict[str, Any]:
    def durations(rng: np.random.Generator, start: int, cost_N: NDArray[np.float64]) -> NDArray[np.float64]:
        slow = 1.3 if 0.5 <= start / LENGTH < 0.75 else 1.0
        cost_R: NDArray[np.float64] = cost_N.reshape(-1, REQUEST).mean(axis=1)
        noise_R = rng.lognormal(0.0, 0.05, size=len(cost_R))
        duration_R: NDArray[np.float64] = 10.0 * slow * cost_R * noise_R
        return duration_R

    def over(controller: LatencyController | None, fixed: str) -> dict[str, float]:
        rng, seen = np.random.default_rng(SEED), []

        def report(start: int, cost_N: NDArray[np.float64]) -> None:
            seen.append(durations(rng, start, cost_N))
            if controller is not None:
                controller.observe_latency(seen[-1])

        _, accuracy = run(stream, lambda: fixed if controller is None else controller.operating_point, report)
        p95 = np.quantile(np.concatenate(seen).reshape(-1, BLOCK // REQUEST), 0.95, axis=1)
        return {
            "mean_absolute_deviation_ms": round(float(np.abs(p95 - target_ms).mean()), 2),
            "largest_excess_ms": round(float((p95 - target_ms).max()), 2),
            "accuracy": round(accuracy, 4),
        }

    controller = LatencyController(stream.family, target_ms, settings=ControlSettings(window=128))
    controlled = over(controller, "")
    # The fixed point that the controller settles at before anything drifts.
    settled = LatencyController(stream.family, target_ms, settings=ControlSettings(window=128))
    rng = np.random.default_rng(SEED)
    for start in range(0, int(0.15 * LENGTH), BATCH):
        drawn = stream.drawn_T[start : start + BATCH]
        settled.observe_latency(durations(rng, start, stream.cost_PN[settled.operating_point][drawn]))
    fixed = settled.operating_point
    return {
        "target_ms": target_ms,
        "fixed": {"point": fixed, **over(None, fixed)},
        "controlled": {**controlled, "moves": controller.state.moves, "changes_detected": controller.state.changes},
    }


def _named(answer: tuple[NDArray[np.float64], float]) -> dict[str, Any]:
    return {"cost_T": answer[0], "accuracy": answer[1]}


def main() -> None:
    rng = np.random.default_rng(SEED)
    if len(sys.argv) > 1:
        tables = Path(sys.argv[1]) / "tables"
        calibration, test = (ExitTable.open(tables / f"{split}.safetensors") for split in ("calibration", "test"))
        source = f"{Path(sys.argv[1]).name}: {test.examples} test examples"
    else:
        calibration, test = synthetic_table("calibration", rng), synthetic_table("test", rng)
        source = "synthetic table"
    stream = make_stream(calibration, test, rng)
    costs = [hold_cost(stream, target) for target in TARGETS]
    print(f"{'target':>7} {'':>10} {'mean':>7} {'deviation':>9} {'excess':>7} {'accuracy':>8} {'moves':>5}")
    for result in costs:
        for kind in ("fixed", "controlled"):
            row = result[kind]
            print(
                f"{result['target']:7.2f} {kind:>10} {row['mean_cost']:7.3f} {row['mean_absolute_deviation']:9.3f} "
                f"{row['largest_excess']:7.3f} {row['accuracy']:8.3f} {row.get('moves', 0):5d}"
            )
    write_results(
        "controller" if len(sys.argv) > 1 else "controller_synthetic",
        {
            "command": " ".join(["python benchmarks/simulate_controller.py", *(["RUN"] if len(sys.argv) > 1 else [])]),
            "what": f"{LENGTH:,} examples, batches of {BATCH}; mix: as the split, hard, easy, as the split",
            "source": source,
            "block": BLOCK,
            "efficient_points": [round(cost, 3) for cost in Ladder.of(stream.family).mean_cost],
            "mean_cost": costs,
            "mean_cost_without_drift": [stay_put(stream, target, rng) for target in TARGETS],
            "mean_cost_drifting_again": drift_again(stream, 0.6, 10),
            "battery": hold_battery(stream),
            "latency_modelled": hold_latency(stream, 8.0),
        },
    )


if __name__ == "__main__":
    main()
