"""The table of classes, short and long."""

from collections.abc import Callable

import numpy as np

from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.report.record import read_run
from elfnet.report.sections import classes


def test_thousands_of_classes_show_both_ends(make_run: Callable[..., RunDirectory]) -> None:
    number = classes.MOST_ROWS + 50
    counts = np.geomspace(1000, 5, number).astype(int).tolist()
    run = make_run(names=[f"class {c}" for c in range(number)], counts=counts, examples=number)
    content = classes.classes(read_run(run), "run-1")
    assert f"Table of {classes.MOST_ROWS} of {number} classes" in content
    assert "50 classes between the most frequent and the rarest are left out" in content
    half = classes.MOST_ROWS // 2
    shown = [f'scope="row">class {c}<' in content for c in range(number)]
    assert shown == [True] * half + [False] * 50 + [True] * half
    assert len(content) < 300_000
