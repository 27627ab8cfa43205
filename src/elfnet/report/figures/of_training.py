"""What the captions of all figures over training have in common."""

from elfnet.report.epoch_log import reweighting_start
from elfnet.report.run_record import RunRecord

NO_LOG = "there is no training log in the run directory"
SUMMED = "Average over the examples leaving at an exit of their loss, summed over the exits they visited."


def trained_on(record: RunRecord) -> str:
    return f"Training split, augmented, n = {record.info['data']['train']:,} an epoch."


def dashed_line(record: RunRecord) -> str:
    """What the dashed line stands for, with a leading space; nothing where there is none."""
    switch = reweighting_start(record.epochs)
    return "" if switch is None else f" Dashed line: re-weighting from epoch {switch}."
