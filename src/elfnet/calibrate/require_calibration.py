"""What every fit asks of its input: a calibration table with examples, and a budget that some exit can meet."""

import math

from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable

ROUNDING = 1e-9
"""Costs and accuracies closer than this are equal: rounding must not exclude a point exactly at the limit."""


def require_calibration(table: ExitTable) -> None:
    """Refuse a table of the test split, and one without examples."""
    if table.split == "test":
        raise RequestError(
            "calibrating on the test split is refused: accuracies measured there would no longer be test results; "
            "use the exit table of the calibration split"
        )
    if table.examples == 0:
        raise RequestError(
            f"the {table.split} exit table has no examples to calibrate on; hold out a larger calibration split"
        )


def require_budget(table: ExitTable, budget: float) -> None:
    """Refuse a mean cost that nobody can keep to, even if all leave at the first exit."""
    cheapest = float(table.cost_E[0])
    if not budget >= cheapest - ROUNDING:
        # Rounded up, so that the number in the message is itself a budget that works.
        least = math.ceil(cheapest * 1e4 - ROUNDING) / 1e4
        raise RequestError(
            f"budget {budget:g} is below the cheapest exit; give {least:g} or more (1 is the plain backbone)"
        )
