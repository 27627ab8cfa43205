"""Numbers as the page writes them."""

import pytest

from elfnet.report import formatting as say


def test_nothing_is_a_dash_and_zero_is_zero() -> None:
    assert say.percent(None) == say.cost(None) == say.number(None) == "–"
    assert say.percent(0.0) == "0.0"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (say.percent(0.9266), "92.7"),
        (say.cost(1.93838), "1.938"),
        (say.signed_points(-0.0466), "−4.7"),
        (say.signed_points(0.0466), "+4.7"),
        (say.signed_points(-0.0001), "0.0"),
        (say.count(12406), "12,406"),
        (say.multiply_adds(11_944_576), "11.9 M"),
        (say.multiply_adds(4.1e9), "4.1 G"),
        (say.multiply_adds(12), "12"),
        (say.duration(113.2), "113 s"),
        (say.duration(1500), "25 min"),
        (say.duration(9000), "2.5 h"),
        (say.versus(0.907, "plain"), "9 % less than plain"),
        (say.versus(1.107, "plain"), "11 % more than plain"),
        (say.versus(1.001, "plain"), "the same as plain"),
    ],
)
def test_formats(shown: str, expected: str) -> None:
    assert shown == expected
