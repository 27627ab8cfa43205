"""Candidates with thresholds per exit: the best ones for falling budgets, fitted on the fitting part."""

import numpy as np

from elfnet.calibrate.confidence_choice import choose_confidence
from elfnet.calibrate.per_exit import family_for_budgets
from elfnet.evaluate.exit_table import ExitTable
from elfnet.exits.policy import Policy

POINTS = 40


def per_exit_path(
    fitting: ExitTable, *, scales: str = "auto", combine: str = "auto", points: int = POINTS
) -> tuple[Policy, ...]:
    """Policies from the dearest to the cheapest; confidence, thresholds and order come from the fitting part alone.

    They are steeper than one threshold for all exits: the same saving costs less accuracy.
    """
    derived = choose_confidence(fitting, scales=scales, combine=combine).derive(fitting)
    cheapest, dearest = float(fitting.cost_E[0]), min(1.0, float(fitting.cost_E[-1]))
    # To six digits for readable names; dict.fromkeys, since a network with one price for all exits has one budget.
    budgets = [max(cheapest, round(budget, 6)) for budget in np.linspace(dearest, cheapest, points).tolist()]
    return family_for_budgets(derived, list(dict.fromkeys(budgets)))
