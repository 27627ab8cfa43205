"""The whole page."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from elfnet.errors import RequestError, WorkError
from elfnet.report.figures.gallery import images_by_exit
from elfnet.report.html import Cell, DrawnFigure
from elfnet.report.page import comparison_section, write_report
from elfnet.report.record import read_run
from elfnet.report.svg import figure_grid
from elfnet.run.directory import RunDirectory


class Seen(HTMLParser):
    """What a browser would see: elements, ids, addresses and the text of table rows."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.rows: list[list[str]] = []
        self._open: list[str] = []
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "srcset", "action", "data", "poster", "background"):
                self.addresses.append(value or "")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if any(tag in self._open for tag in ("td", "th")):
            self.rows[-1][-1] += data

    def row(self, first: str) -> list[str]:
        return next(row for row in self.rows if row and row[0] == first)

    def row_of_point(self, name: str) -> list[str]:
        """The row of an operating point, which may stand under several names."""
        return next(row for row in self.rows if row and name in row[0].split(", "))


@pytest.fixture(scope="module")
def page(elf_run: RunDirectory, plain_run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two runs, the one with exits first: everything that a page can hold."""
    return write_report([elf_run.root, str(plain_run.root)], tmp_path_factory.mktemp("out") / "both.html").read_text()


def test_operating_points_are_those_of_the_metrics(page: str, elf_run: RunDirectory) -> None:
    points = json.loads(elf_run.metrics_file.read_text())["points"]
    seen = Seen(page)
    for name in ("full", "s=0.5", "s=0.7", "s=0.9"):
        point = points[name]
        groups = point["accuracy_by_group"]
        assert groups["few"] is None
        row = seen.row_of_point(name)
        assert name in row[0].split(", ")
        assert row[1:] == [
            f"{100 * point['accuracy']:.1f}",
            f"{100 * groups['many']:.1f}",
            f"{100 * groups['medium']:.1f}",
            "–",
            f"{100 * point['balanced_accuracy']:.1f}",
            f"{point['mean_cost']:.3f}",
            f"{point['worst_cost']:.3f}",
            *(f"{100 * share:.1f}" for share in point["exit_share"]),
        ]


def test_exits_and_classes_are_those_of_the_metrics(page: str, elf_run: RunDirectory) -> None:
    metrics = json.loads(elf_run.metrics_file.read_text())
    seen = Seen(page)
    last = metrics["exits"][-1]
    shown = seen.row("exit 4")
    assert (shown[1], shown[2], shown[5]) == ("1.130", f"{100 * last['accuracy']:.1f}", "–")
    assert shown[-1] == f"{100 * last['calibration_error']:.1f}"
    by_class = [metrics["points"][name]["accuracy_by_class"][1] for name in ("full", "accurate", "economic")]
    assert seen.row("$x_1$") == ["$x_1$", "101", "many", *(f"{100 * accuracy:.1f}" for accuracy in by_class)]


def test_captions_say_unit_split_and_n(page: str) -> None:
    assert "multiply-adds relative to the plain backbone" in page
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page)
    assert len(captions) == 23
    assert all("split" in caption and "n\u00a0=\u00a0" in caption for caption in captions)


def test_names_are_text_everywhere(page: str) -> None:
    seen = Seen(page)
    # One script that runs, and two data blocks for the sliders: of both runs, and of the one with exits.
    assert re.findall(r"<script[^>]*>", page) == ['<script type="application/json">'] * 2 + ["<script>"]
    assert "<script>alert" not in page
    assert not re.search(r"<[^>]* on\w+=", page)
    assert seen.row("<script>alert(1)</script>")[1] == "500"
    assert seen.row("橙 & \\$orange\\$")[1] == "100"
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", page)
    assert {"$x_1$", "橙 &amp; \\$orange\\$"} <= set(labels)


def test_asks_no_other_host_for_anything(page: str) -> None:
    seen = Seen(page)
    assert "http:" not in page
    assert "https:" not in page
    assert "@import" not in page
    assert all(address.startswith(("#", "data:")) for address in seen.addresses)
    assert not {"img", "iframe", "object", "embed", "base", "form"} & set(seen.tags)
    assert "default-src 'none'" in page


def test_links_and_figures_point_at_what_is_there_once(page: str) -> None:
    seen = Seen(page)
    wanted = {address[1:] for address in seen.addresses if address.startswith("#")}
    wanted |= set(re.findall(r"url\(#([^)]+)\)", page))
    assert wanted <= set(seen.ids)
    assert len(seen.ids) == len(set(seen.ids))


def test_every_element_is_closed_in_order(page: str) -> None:
    """HTML of the strict kind: what is opened is closed, innermost first."""

    class Balance(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            names = [name for name, _ in attrs]
            assert len(names) == len(set(names)), (tag, names)
            if tag not in ("meta", "link", "input", "br"):
                self.open.append(tag)

        def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            """`<path />` of SVG."""

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

    balance = Balance()
    balance.feed(page)
    balance.close()
    assert balance.open == []


def test_small(page: str) -> None:
    assert len(page.encode()) < 500_000


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")  # no figure grows with the number of images; `test_small` has them drawn
def test_ten_thousand_images_and_sixty_points_stay_small(make_run: Callable[..., RunDirectory], tmp_path: Path) -> None:
    names = [f"class {c}" for c in range(100)]
    counts = [500 - 4 * c for c in range(100)]
    search = [f"{0.3 + s / 100:.2f}" for s in range(60)]
    run = make_run("large", examples=10_000, names=names, counts=counts, search=search)
    content = write_report([run], tmp_path / "large.html").read_bytes()
    assert len(content) < 500_000  # the limit for all is 5 MB, of which figures and gallery take a fifth each
    assert b"Line search: 60 points" in content


def test_the_slider_holds_the_points_of_the_metrics(page: str, elf_run: RunDirectory) -> None:
    both, alone = (json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', page))
    assert [len(tracks) for tracks in both["runs"]] == [2, 1]  # a plain network has one track
    assert alone["runs"][0] == both["runs"][0]
    metrics = json.loads(elf_run.metrics_file.read_text())
    curve, family = alone["runs"][0]
    assert [row[4] for row in curve] == [f"{100 * point['accuracy']:.1f}" for point in metrics["curve"]]
    assert {row[0]: row[3] for row in family} == {
        name: f"{metrics['points'][name]['mean_cost']:.3f}" for name in ("full", "s=0.5", "s=0.7", "s=0.9")
    }
    sliders = re.findall(r'<input type="range" id="([^"]+)" min="([^"]+)" max="([^"]+)"', page)
    assert [name for name, _, _ in sliders] == ["together-budget", "run-1-budget"]
    assert all(float(low) < float(high) == 1.0 for _, low, high in sliders)


def test_a_table_stands_for_the_slider(page: str, elf_run: RunDirectory) -> None:
    """On paper and without scripts: the last row of its first table is full depth."""
    full = json.loads(elf_run.metrics_file.read_text())["points"]["full"]
    rows = [row for row in Seen(page).rows if row[:2] == ["1.000", "full depth"]]
    groups = full["accuracy_by_group"]
    numbers = [full["accuracy"], groups["many"], groups["medium"]]
    assert rows[0][2:] == [*(f"{100 * number:.1f}" for number in numbers), "–", "1.000", "0.0 / 0.0 / 0.0 / 100.0"]


def test_images_are_in_the_page_itself(digits_run: RunDirectory) -> None:
    (block,) = figure_grid("run-1", images_by_exit(read_run(digits_run))).blocks
    assert isinstance(block, DrawnFigure)
    content = block.svg
    seen = Seen(content)
    assert seen.tags.count("image") == 1
    assert all(address.startswith(("#", "data:")) for address in seen.addresses)
    assert "http:" not in content
    assert len(content) < 1_000_000


@pytest.mark.usefixtures("undrawn")
def test_images_can_be_left_out(digits_run: RunDirectory, tmp_path: Path) -> None:
    assert "From easy to hard" in write_report([digits_run], tmp_path / "with.html").read_text()
    without = write_report([digits_run], tmp_path / "without.html", with_images=False).read_text()
    assert "From easy to hard" not in without


@pytest.mark.usefixtures("undrawn")
def test_without_a_table_the_page_says_so_once_a_section(make_run: Callable[..., RunDirectory]) -> None:
    run = make_run()
    run.table("test").unlink()
    content = write_report([run], with_images=False).read_text()
    assert content.count("has no exit table of the test split; run &#39;elfnet evaluate") == 3
    assert "Training images by class" in content


def test_several_runs_side_by_side(page: str, elf_run: RunDirectory, plain_run: RunDirectory) -> None:
    seen = Seen(page)
    accuracy = [json.loads(run.metrics_file.read_text())["points"]["full"]["accuracy"] for run in (elf_run, plain_run)]
    difference = seen.row("plain")
    assert float(difference[1].split()[0].replace("−", "-")) == pytest.approx(
        100 * (accuracy[1] - accuracy[0]), abs=0.06
    )
    assert difference[4] == "–"
    beside = next(row for row in seen.rows if row and row[0].startswith("plain") and "CE+DRW" in row)
    assert beside[2] == f"{100 * accuracy[1]:.1f}"
    assert beside[-6:-2] == ["–"] * 4  # no early exit, no early operating points
    assert {"run-1", "run-2", "together"} <= set(seen.ids)


@pytest.mark.slow
def test_plain_run_alone_twice_is_the_same_bytes(
    plain_run: RunDirectory, make_run: Callable[..., RunDirectory]
) -> None:
    run = make_run("plain", exits=1, seed=2)
    assert write_report([run]) == run.report_file
    content = run.report_file.read_bytes()
    assert b"every operating point is full depth" in content
    assert b"s=0.5" not in re.sub(rb"<details>.*?</details>", b"", content, flags=re.DOTALL)
    # The same files in another directory of that name, at another time.
    assert write_report([plain_run], run.root / "again.html").read_bytes() == content


def test_run_without_metrics_is_refused_in_one_line(make_run: Callable[..., RunDirectory]) -> None:
    run = make_run()
    run.metrics_file.unlink()
    with pytest.raises(RequestError, match=r"run 'elfnet calibrate .*' first") as caught:
        write_report([run])
    assert "\n" not in str(caught.value)
    assert not run.report_file.exists()


def test_a_directory_is_no_file_to_write(plain_run: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="is a directory"):
        write_report([plain_run], tmp_path)


def test_neither_torch_nor_pyplot_is_loaded_and_matplotlib_only_to_draw(
    plain_run: RunDirectory, tmp_path: Path
) -> None:
    code = """
import sys
from pathlib import Path
from elfnet.report.page import page as page_of
from elfnet.report.record import read_run
from elfnet.report.page import write_report
assert "matplotlib" not in sys.modules
write_report([sys.argv[1]], Path(sys.argv[2]))
assert "matplotlib" in sys.modules
assert not {"torch", "matplotlib.pyplot"} & set(sys.modules)
"""
    command = [sys.executable, "-c", code, str(plain_run.root), str(tmp_path / "out.html")]
    assert subprocess.run(command, check=False).returncode == 0


@pytest.mark.usefixtures("undrawn")
def test_differences_to_the_first_run(elf_run: RunDirectory, plain_run: RunDirectory) -> None:
    first, second = read_run(elf_run), read_run(plain_run)
    section = comparison_section([first, second])
    assert section.not_compared == ()
    assert section.differences is not None
    ((name, everyone, *_, few, _),) = section.differences.rows
    assert (section.first, name, few) == ("elf", "plain", "–")
    assert isinstance(everyone, Cell)
    assert everyone.value == pytest.approx(second.at("full").accuracy - first.at("full").accuracy)
    low, high = (float(end.replace("−", "-")) for end in everyone.interval.strip("[]").split(", "))
    assert low <= 100 * (everyone.value or 0) <= high
    assert everyone.bold == (low > 0 or high < 0)


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_cannot_be_compared_is_named_with_the_reason(elf_run: RunDirectory, plain_run: RunDirectory) -> None:
    section = comparison_section([read_run(elf_run), replace(read_run(plain_run), table=None)])
    assert section.differences is None
    assert section.not_compared == ("plain is not compared: plain has no exit table of the test split.",)
