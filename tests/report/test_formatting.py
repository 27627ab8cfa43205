"""Numbers and names as text."""

import pytest

from elfnet.report import formatting as fmt


def test_nothing_is_a_dash_and_zero_is_zero() -> None:
    assert fmt.percent(None) == fmt.cost(None) == fmt.number(None) == "–"
    assert fmt.percent(0.0) == "0.0"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (fmt.percent(0.9266), "92.7"),
        (fmt.cost(1.93838), "1.938"),
        (fmt.signed_points(-0.0466), "−4.7"),
        (fmt.signed_points(0.0466), "+4.7"),
        (fmt.signed_points(-0.0001), "0.0"),
        (fmt.count(12406), "12,406"),
        (fmt.multiply_adds(11_944_576), "11.9 M"),
        (fmt.multiply_adds(4.1e9), "4.1 G"),
        (fmt.multiply_adds(12), "12"),
        (fmt.duration(113.2), "113 s"),
        (fmt.duration(1500), "25 min"),
        (fmt.duration(9000), "2.5 h"),
        (fmt.versus(0.907, "plain"), "9 % less than plain"),
        (fmt.versus(1.107, "plain"), "11 % more than plain"),
        (fmt.versus(1.001, "plain"), "the same as plain"),
    ],
)
def test_formats(shown: str, expected: str) -> None:
    assert shown == expected


def test_control_characters_are_replaced() -> None:
    # NUL, escape, a right-to-left override and half a surrogate pair would break the page or its encoding.
    assert fmt.readable("a\x00b\x1bc\u202ed\ud800e") == "a\ufffdb\ufffdc\ufffdd\ufffde"
    assert fmt.readable("tab\tand\nline") == "tab\tand\nline"


def test_numbers_stay_with_their_units() -> None:
    assert fmt.nonbreaking("92.6 % of n = 5") == "92.6\u00a0% of n\u00a0=\u00a05"
