"""Tables of operating points, exits and classes."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from elfnet.report.record import read_run
from elfnet.report.sections import points
from elfnet.run.directory import RunDirectory


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


def test_notes_of_calibration_and_guarantees(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    promise = {"epsilon": 0.02, "delta": 0.05, "loss": "accuracy", "secret": "not shown"}
    family_points = [
        replace(point, promise=promise) if point.name == "s=0.9" else point for point in record.family.points
    ]
    family = replace(record.family, points=tuple(family_points), notes=("one <note>",))
    shown = points.operating_points(replace(record, family=family))
    assert shown.notes == ("one <note>", "s=0.9: loss accuracy, epsilon 0.02, delta 0.05")


def test_many_points_are_folded_by_rule(make_run: Callable[..., RunDirectory], elf_run: RunDirectory) -> None:
    few = points.operating_points(read_run(elf_run))
    assert (few.others, few.by_rule) == (0, ())
    assert few.table.emphasised == {
        i for i, row in enumerate(few.table.rows) if str(row[0]).split()[0] in ("full", "accurate", "economic")
    }
    many = points.operating_points(read_run(make_run(search=[f"{0.3 + s / 100:.2f}" for s in range(60)])))
    assert len(many.table.rows) == 3
    assert many.others == sum(len(table.rows) for table in many.by_rule) == 60
    assert [table.folded for table in many.by_rule] == ["Line search: 60 points"]
