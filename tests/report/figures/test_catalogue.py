"""All figures, and their files."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from elfnet.errors import WorkError
from elfnet.report.figures.base import NoFigure
from elfnet.report.figures.catalogue import WrittenFigures, figures_of_run, write_figures
from elfnet.report.record import read_run
from elfnet.run.directory import RunDirectory

PAPERS = {
    "confidence-in-true-class",
    "loss-by-exit",
    "class-distribution",
    "accuracy-against-cost",
    "images-by-exit",
    "architecture",
    "accuracy-by-class",
    "exit-shares",
    "reliability",
    "cost-histogram",
}

OVER_TRAINING = {
    "training-curves",
    "loss-by-exit-over-training",
    "exit-shares-over-training",
    "loss-shares-over-training",
}


@pytest.fixture(scope="module")
def written(digits_run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> WrittenFigures:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elfnet.report.figures.catalogue.DPI", 30)  # quicker
        return write_figures([digits_run], tmp_path_factory.mktemp("figures") / "new" / "directory")


def test_every_figure_as_png_and_svg(written: WrittenFigures) -> None:
    names = {file.stem for file in written.files}
    assert names >= PAPERS
    assert {file.name for file in written.files} == {f"{name}.{kind}" for name in names for kind in ("png", "svg")}
    assert written.left_out == ()


def test_png_is_a_picture_and_svg_holds_its_caption(written: WrittenFigures) -> None:
    for file in written.files:
        if file.suffix == ".png":
            assert file.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
            continue
        root = ElementTree.parse(file).getroot()
        words = " ".join("".join(node.itertext()) for node in root.iter() if node.tag.endswith("}text"))
        assert "split" in words, file.name
        assert "n = " in words, file.name


@pytest.mark.usefixtures("two_figures")
def test_same_files_same_bytes(plain_run: RunDirectory, tmp_path: Path) -> None:
    first = write_figures([plain_run], tmp_path / "a")
    again = write_figures([plain_run], tmp_path / "b")
    assert [file.name for file in first.files] == [file.name for file in again.files]
    for one, other in zip(first.files, again.files, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


@pytest.mark.slow
@pytest.mark.usefixtures("two_figures")
def test_several_runs_and_what_cannot_be_drawn(
    make_run: Callable[..., RunDirectory], plain_run: RunDirectory, tmp_path: Path
) -> None:
    run = make_run("a <b>")
    run.table("test").unlink()
    written = write_figures([run, plain_run], tmp_path / "out")
    assert {file.stem for file in written.files} == {
        "a-b-class-distribution",
        "plain-class-distribution",
        "plain-reliability",
        "accuracy-against-cost-of-runs",
        "accuracy-against-cost-of-runs-medium",
    }
    missing = dict(line.split(": ", 1) for line in written.left_out)
    assert list(missing) == ["a-b-reliability", "threshold-ablation"]
    assert "run 'elfnet evaluate" in missing["a-b-reliability"]
    assert all("\n" not in line for line in written.left_out)


def test_what_needs_single_examples_needs_the_table(elf_run: RunDirectory) -> None:
    figures = list(figures_of_run(replace(read_run(elf_run), table=None), with_images=False))
    missing = [figure.name for figure in figures if isinstance(figure, NoFigure)]
    assert missing == ["confidence-in-true-class", "reliability", "cost-histogram"]
    assert {figure.name for figure in figures} == {*PAPERS - {"images-by-exit"}, *OVER_TRAINING, "confusion"}


def test_a_file_is_no_directory(plain_run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WorkError, match="it is a file"):
        write_figures([plain_run], tmp_path / "file")
