"""Evaluation from exit tables: replaying policies, accuracy by group, curves, and paired comparisons.

An exit table has the logits of every exit for every example. Only `evaluate_run` runs a network and needs torch; all
other functions read exit tables. The package must not import `calibrate` or `train`.
"""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.evaluate.exit_table import ExitTable
    from elfnet.evaluate.metrics import balanced_accuracy, measure
    from elfnet.evaluate.policy_replay import ExitConfidences, compute_confidences, replay
    from elfnet.evaluate.run import evaluate_run
    from elfnet.evaluate.trade_off import curve

_MODULES = {
    "ExitConfidences": "elfnet.evaluate.policy_replay",
    "ExitTable": "elfnet.evaluate.exit_table",
    "balanced_accuracy": "elfnet.evaluate.metrics",
    "compute_confidences": "elfnet.evaluate.policy_replay",
    "curve": "elfnet.evaluate.trade_off",
    "evaluate_run": "elfnet.evaluate.run",
    "measure": "elfnet.evaluate.metrics",
    "replay": "elfnet.evaluate.policy_replay",
}

__all__ = [
    "ExitConfidences",
    "ExitTable",
    "balanced_accuracy",
    "compute_confidences",
    "curve",
    "evaluate_run",
    "measure",
    "replay",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
