"""The operating points that a table shows, by the names that `calibrate` gives them. All are chosen on the calibration
split."""

FULL = "full"
COMPARED = "accurate"
"""What the paper's number stands beside: one threshold for all exits, the most accurate, which is the paper's rule. Of
a plain network it is full depth."""
POINTS = (FULL, COMPARED, "economic", "within-1")
"""Beside those: one threshold for all exits, the cheapest that loses at most one point; the same per exit."""
BUDGETS = tuple(f"budget={budget:g}" for budget in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9))
"""Thresholds per exit, the most accurate within a mean cost."""
