"""Exit rules: at which exit an example stops, in training (`TrainingRule`) and at inference (`Policy`).

Policies, thresholds and logit adjustment must not import torch; only the training rule needs it.
"""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.exits.logit_adjustment import LogitAdjustment
    from elfnet.exits.policy import Decision, Policy, full_depth, uniform_policy
    from elfnet.exits.threshold import parse_threshold
    from elfnet.exits.training_rule import TrainingRule, exit_taken

_MODULES = {
    "Decision": "elfnet.exits.policy",
    "LogitAdjustment": "elfnet.exits.logit_adjustment",
    "Policy": "elfnet.exits.policy",
    "TrainingRule": "elfnet.exits.training_rule",
    "exit_taken": "elfnet.exits.training_rule",
    "full_depth": "elfnet.exits.policy",
    "parse_threshold": "elfnet.exits.threshold",
    "uniform_policy": "elfnet.exits.policy",
}

__all__ = [
    "Decision",
    "LogitAdjustment",
    "Policy",
    "TrainingRule",
    "exit_taken",
    "full_depth",
    "parse_threshold",
    "uniform_policy",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
