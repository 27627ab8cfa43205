"""The operating point of a client that gives none."""

from dataclasses import replace

import numpy as np
import pytest

from elfnet.calibrate.line_search import fixed_points
from elfnet.calibrate.point_family import Family
from elfnet.evaluate.exit_table import ExitTable
from elfnet.export.file_content import default_point_of

pytestmark = pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)


def test_a_sum_of_weights_just_below_1_is_full_depth(exported_family: Family) -> None:
    full, *early = exported_family.points
    assert full.expected.exit_share[-1] == 1.0
    share = float(np.nextafter(1.0, 0.0))
    rounded = full.expected.model_copy(update={"exit_share": (0.0, 0.0, 0.0, share), "balanced_accuracy": 1.0})
    almost = replace(exported_family, points=(replace(full, expected=rounded), *early))
    assert default_point_of(almost) == default_point_of(exported_family) != full.name


def test_a_family_without_early_exits(exported_table: ExitTable) -> None:
    assert default_point_of(fixed_points(exported_table, [1.0])) == "full"
