"""Styles and labels that all figures share."""

from itertools import pairwise

from elfnet.report.figures.base import GROUP_STYLES, label_text, series_style


def test_styles_of_neighbours_differ_in_more_than_colour() -> None:
    styles = [series_style(position) for position in range(28)]
    assert len({(one.colour, str(one.line)) for one in styles}) == 28
    for one, other in pairwise(styles):
        assert one.colour != other.colour
        assert one.line != other.line
        assert one.marker != other.marker
        assert one.hatch != other.hatch
    groups = list(GROUP_STYLES.values())[1:]
    assert len({one.hatch for one in groups}) == len({one.marker for one in groups}) == 3


def test_labels_are_one_short_line_without_mathematics() -> None:
    assert label_text("a\nb  $x$") == r"a b \$x\$"
    assert label_text("x" * 50, 10) == "x" * 9 + "…"
