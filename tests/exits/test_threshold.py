"""Thresholds as users write them."""

import pytest

from elfnet.errors import RequestError
from elfnet.exits.threshold import parse_threshold


@pytest.mark.parametrize(
    ("text", "classes", "value"),
    [
        (0.9, 10, 0.9),
        (1, 10, 1.0),
        ("0.9", 10, 0.9),
        (".5", 10, 0.5),
        ("9e-1", 10, 0.9),
        ("0", 10, 0.0),
        ("2/C", 10, 0.2),
        ("1.5/C", 100, 0.015),
        (" 2 / c ", 8, 0.25),
        ("2/C", 2, 1.0),
    ],
)
def test_numbers_and_multiples_of_one_over_c(text: str | float, classes: int, value: float) -> None:
    assert parse_threshold(text, classes=classes) == pytest.approx(value, abs=1e-15)


@pytest.mark.parametrize(
    "text", ["", "high", "2/D", "2/", "/C", "nan", "inf", "-0.1", "1_0", "0.9 0.8", "2/C/C", "__import__"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="threshold") as caught:
        parse_threshold(text, classes=10)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [1.0001, -0.1, float("nan"), float("inf"), "1.5", "11/C"])
def test_values_outside_zero_to_one_are_refused(value: str | float) -> None:
    with pytest.raises(RequestError, match=r"not between 0 and 1.*give a probability"):
        parse_threshold(value, classes=10)
