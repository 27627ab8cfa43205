"""Figures inside the page."""

from xml.etree import ElementTree

import matplotlib
import pytest

from elfnet.report.figures.classes import draw_class_distribution
from elfnet.report.svg import inline_svg

NAMES = ["<script>alert(1)</script>", "$x_1$", "橙", 'url(#a) id="b"']


@pytest.fixture(scope="module")
def drawn() -> str:
    return inline_svg(draw_class_distribution(NAMES, [90, 30, 10, 3], [0, 1, 1, 2]), "one", "<label>")


def test_labels_are_text_and_shown_as_they_are(drawn: str) -> None:
    texts = [node.text for node in ElementTree.fromstring(drawn).iter("text")]
    assert "<script>alert(1)</scr…" in texts
    assert NAMES[1:] == [text for text in texts if text in NAMES]
    assert "<script>" not in drawn


def test_ids_are_the_figures_own_and_every_reference_resolves(drawn: str) -> None:
    root = ElementTree.fromstring(drawn)
    ids = [node.attrib["id"] for node in root.iter() if "id" in node.attrib]
    assert len(ids) == len(set(ids))
    assert all(one.startswith("one-") for one in ids)
    used = {node.attrib["href"].removeprefix("#") for node in root.iter("use")}
    used |= {node.attrib["clip-path"][5:-1] for node in root.iter() if "clip-path" in node.attrib}
    assert used <= set(ids)
    assert used


def test_small_themed_and_without_addresses(drawn: str) -> None:
    assert "http" not in drawn
    assert "<metadata" not in drawn
    assert "<style" not in drawn
    assert "font-family" not in drawn
    assert "var(--ink)" in drawn
    assert 'aria-label="&lt;label&gt;"' in drawn
    assert len(drawn) < 30_000


def test_the_users_settings_neither_matter_nor_change(drawn: str) -> None:
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path", "text.color": "red"}):
        before = dict(matplotlib.rcParams)
        again = inline_svg(draw_class_distribution(NAMES, [90, 30, 10, 3], [0, 1, 1, 2]), "one", "<label>")
        assert dict(matplotlib.rcParams) == before
    assert again == drawn


def test_coordinates_keep_sign_and_place() -> None:
    from elfnet.report.svg import _rewritten

    assert _rewritten("n", "d", "M -0.5678 1.23456 \nL -0.0001 100.999") == "M -0.57 1.23 L 0 101"
