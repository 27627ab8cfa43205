"""How many examples a promise needs."""

import math

import pytest

from elfnet.calibrate.risk.bounds import METHODS, enough_examples, fewest_examples
from elfnet.calibrate.risk.losses import loss_form


@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 0.05), (0.05, 0.1), (0.3, 0.2), (0.9, 0.5), (0.1, 0.9)])
def test_hoeffding_bentkus_has_a_closed_form(epsilon: float, delta: float) -> None:
    method, form = METHODS["hoeffding-bentkus"], loss_form("agreement", prefers_signed=False)
    expected = math.ceil(math.log(delta) / math.log(1 - epsilon))
    assert fewest_examples(epsilon=epsilon, delta=delta, method=method, form=form) == expected


@pytest.mark.parametrize("loss", ["accuracy", "agreement"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 0.05), (0.05, 0.1), (0.4, 0.2)])
def test_one_example_fewer_is_not_enough(loss: str, epsilon: float, delta: float) -> None:
    method, form = METHODS["betting"], loss_form(loss, prefers_signed=True)
    fewest = fewest_examples(epsilon=epsilon, delta=delta, method=method, form=form)
    for examples, expected in ((fewest, True), (fewest - 1, False), (0, False), (2 * fewest, True)):
        enough = enough_examples(examples, epsilon=epsilon, delta=delta, method=method, form=form)
        assert enough is expected, examples
    least = math.log(delta) / math.log(1 - epsilon)
    assert least <= fewest < 2 * least + 3


def test_a_number_beyond_all_tables_is_not_searched_for() -> None:
    method, form = METHODS["betting"], loss_form("accuracy", prefers_signed=True)
    fewest = fewest_examples(epsilon=1e-12, delta=0.05, method=method, form=form)
    assert fewest == pytest.approx(math.log(20) * 1e12, rel=1e-6)
