"""What the rules for thresholds give at equal cost, on the test split of finished runs.

    python results/compare_rules.py cifar10-lt-100 runs/cifar10/*

Every rule is fitted on the calibration split for the same budgets, then measured once on test, and compared with the
paper's rule (one threshold s for all exits, the model's own confidence, every head run) by a paired bootstrap. Writes
`results/cifar10-lt-100/rules.json` and `rules.md`.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from elfnet import atomic
from elfnet.calibrate.confidence import choose_confidence
from elfnet.calibrate.per_exit_search import geometric_policy, thresholds_for_budget
from elfnet.evaluate.bootstrap import paired_bootstrap
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import compute_confidences, replay
from elfnet.evaluate.trade_off import spread_thresholds, sweep_uniform
from elfnet.exits.policy import Policy, uniform_policy
from elfnet.run.directory import open_run

BUDGETS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
HERE = Path(__file__).parent
Rule = Callable[[ExitTable, float], Policy]


def one_threshold(table: ExitTable, budget: float) -> Policy:
    """The paper's rule: the most accurate s within the budget, every head run."""
    all_heads = replace(table, head_cost_E=None)
    derived = compute_confidences(all_heads)
    thresholds_P = spread_thresholds(derived.confidence_NE[:, :-1], 4000)
    figures = sweep_uniform(derived, thresholds_P)
    within = np.flatnonzero(figures.mean_cost_P <= budget)
    best = within[np.argmax(figures.accuracy_P[within])]
    return uniform_policy("s", float(thresholds_P[best]), table.exits, table.confidence_scale)


def per_exit(scales: str, combine: str, *, skip_heads: bool) -> Rule:
    def fit(table: ExitTable, budget: float) -> Policy:
        table = table if skip_heads else replace(table, head_cost_E=None)
        return thresholds_for_budget(
            choose_confidence(table, scales=scales, combine=combine).compute_confidences(table), budget
        )

    return fit


INTRODUCTION = """Fitted on the calibration split for the same budgets, then measured once on test. The paper's rule
has one threshold s for all exits, the model's own confidence, and runs every head on the way. The others run no head at
which nobody may leave, except where it says so. Written by `python results/compare_rules.py`."""
PAPER = "paper: one s"
RULES: dict[str, Rule] = {
    PAPER: one_threshold,
    "geometric": lambda table, budget: geometric_policy(compute_confidences(table), budget),
    "per exit, own scale, all heads run": per_exit("own", "off", skip_heads=False),
    "per exit, own scale": per_exit("own", "off", skip_heads=True),
    "per exit, fitted scales": per_exit("fitted", "off", skip_heads=True),
    "per exit, fitted scales, combined": per_exit("fitted", "on", skip_heads=True),
    "per exit, as calibrate chooses": per_exit("auto", "auto", skip_heads=True),
}


def compare(calibration: ExitTable, test: ExitTable) -> dict[str, Any]:
    """For each budget and rule: test accuracy, mean cost on test, and the difference to the paper's rule."""
    found: dict[str, Any] = {}
    for budget in BUDGETS:
        policies = {name: rule(calibration, budget) for name, rule in RULES.items()}
        measured = {name: replay(test, policy) for name, policy in policies.items()}
        # The paper's network computes every head on the way.
        every_head = replay(replace(test, head_cost_E=None), policies[PAPER])
        row: dict[str, Any] = {}
        for name, answers in measured.items():
            cost_N = every_head.cost_N if name == PAPER else answers.cost_N
            row[name] = {
                "accuracy": float((answers.prediction_N == test.labels_N).mean()),
                "mean_cost": float(cost_N.mean()),
            }
            if name != PAPER:
                differences = paired_bootstrap((test, measured[PAPER]), (test, answers)).to_dict()["differences"]
                row[name]["to_paper"] = {group: differences[group] for group in ("all", "many", "medium", "few")}
        found[f"{budget:g}"] = row
    return found


def page(records: dict[str, Any]) -> str:
    lines = ["# Rules for thresholds at equal cost", "", INTRODUCTION, ""]
    for run, budgets in records.items():
        lines += [
            f"## {run}",
            "",
            "Test accuracy in %, and points gained over the paper's rule with a 95 % interval.",
            "",
        ]
        lines += ["| budget | " + " | ".join(RULES) + " |", "|---" * (len(RULES) + 1) + "|"]
        for budget, row in budgets.items():
            cells = []
            for name in RULES:
                cell = f"{100 * row[name]['accuracy']:.1f} at {row[name]['mean_cost']:.2f}"
                if name != PAPER:
                    gain = row[name]["to_paper"]["all"]
                    cell += f" ({100 * gain['estimate']:+.1f}, {100 * gain['low']:+.1f} to {100 * gain['high']:+.1f})"
                cells.append(cell)
            lines.append(f"| {budget} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def main(folder: str, places: list[str]) -> None:
    records = {}
    for place in places:
        run = open_run(place)
        tables = [ExitTable.open(run.table(split)) for split in ("calibration", "test")]
        if tables[0].exits > 1:
            records[run.root.name] = compare(*tables)
    atomic.write_json(HERE / folder / "rules.json", {"budgets": list(BUDGETS), "runs": records})
    atomic.write_text(HERE / folder / "rules.md", page(records))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
