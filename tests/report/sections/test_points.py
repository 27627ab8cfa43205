"""Tables of operating points, exits and classes."""

from collections.abc import Callable

import numpy as np

from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.report.record import read_run
from elfnet.report.sections import points


def test_thousands_of_classes_show_both_ends(make_run: Callable[..., RunDirectory]) -> None:
    number = points.MAX_CLASS_ROWS + 50
    counts = np.geomspace(1000, 5, number).astype(int).tolist()
    run = make_run(names=[f"class {c}" for c in range(number)], counts=counts, examples=number)
    table = points.class_table(read_run(run))
    assert table.folded == f"Table of {points.MAX_CLASS_ROWS} of {number} classes"
    assert "50 classes between the most frequent and the rarest are left out" in table.caption
    half = points.MAX_CLASS_ROWS // 2
    shown = {row[0] for row in table.rows}
    assert [f"class {c}" in shown for c in range(number)] == [True] * half + [False] * 50 + [True] * half
