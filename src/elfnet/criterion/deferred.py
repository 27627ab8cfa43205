"""Deferred re-weighting (DRW): all weights are 1 until an epoch, the class weights from then on."""


def weights_in_force(epoch: int, *, reweight: str, start: int) -> str:
    """The name of the weighting that applies in a 0-based `epoch`. A pure function: nothing to restore on resume.

    Example:
        >>> [weights_in_force(e, reweight="effective", start=160) for e in (159, 160)]
        ['none', 'effective']
    """
    return reweight if epoch >= start else "none"
