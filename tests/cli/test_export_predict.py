"""elfnet export and elfnet predict: what they print, write, skip and refuse."""

import csv
import io
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from elfnet.calibrate.point_family import Family
from elfnet.cli.main import main
from elfnet.cli.output import Columns, Csv, FileProgress, JsonLines
from elfnet.export import run as module
from elfnet.inference.bundle.one_file import open_one_file
from elfnet.inference.model import Prediction
from elfnet.inference.predict_files import Classified

Call = Callable[..., tuple[int, str, str]]


pytestmark = pytest.mark.usefixtures("_graphs_made_once")


@pytest.fixture(scope="module")
def bundle(_graphs_made_once: None, finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / "tiny.onnx"
    assert main(["export", str(finished), "--out", str(path)]) == 0
    return path


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten digits, one in a folder of its own."""
    folder = tmp_path_factory.mktemp("photos")
    (folder / "nested").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (10, 32, 32), dtype=np.uint8)
    for number, image in enumerate(pixels):
        name = f"nested/{number}.png" if number == 9 else f"{number}.png"
        Image.fromarray(image).save(folder / name)
    return folder


@pytest.fixture
def spoilt(photos: Path, tmp_path: Path) -> Path:
    """The same with a text, an empty file and a truncated image among them."""
    folder = tmp_path / "spoilt"
    shutil.copytree(photos, folder)
    (folder / "1.png").write_text("hello")
    (folder / "3.png").write_bytes(b"")
    content = (folder / "5.png").read_bytes()
    (folder / "5.png").write_bytes(content[: len(content) // 2])
    return folder


def lines(out: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


def one_line(result: tuple[int, str, str], code: int) -> str:
    found, out, error = result
    assert out == ""
    assert error.count("\n") == 1, error
    assert error.startswith("elfnet: ")
    assert found == code
    return error


@pytest.mark.usefixtures("bundle")  # the exporter leaves a thread behind when it is first used: not inside a test
def test_export_says_what_it_did(elfnet: Call, finished: Path, tmp_path: Path) -> None:
    code, out, _ = elfnet("export", finished, "--out", tmp_path / "a.onnx")
    assert code == 0
    assert "compared with torch on 60 calibration images" in out
    assert "peak memory" in out
    assert f"bundle: {tmp_path / 'a.onnx'}" in out
    before = (tmp_path / "a.onnx").read_bytes()
    assert "give --overwrite" in one_line(elfnet("export", finished, "--out", tmp_path / "a.onnx"), 2)
    assert (tmp_path / "a.onnx").read_bytes() == before


def test_export_json_and_refusals(elfnet: Call, finished: Path, tmp_path: Path) -> None:
    code, out, _ = elfnet("export", finished, "--out", tmp_path / "a.onnx", "--json")
    summary = json.loads(out)
    assert code == 0
    assert summary["bytes"] == (tmp_path / "a.onnx").stat().st_size
    assert summary["variants"]["float32"]["parity"]["images"] == 60
    assert open_one_file(tmp_path / "a.onnx").identity == summary["identity"]
    assert "one ONNX file; name it NAME.onnx" in one_line(elfnet("export", finished, "--out", tmp_path / "b.elfnet"), 2)
    assert "is a directory; name another --out" in one_line(
        elfnet("export", finished, "--out", tmp_path, "--overwrite"), 2
    )
    assert "unknown operating point 'fast'" in one_line(
        elfnet("export", finished, "--out", tmp_path / "c.onnx", "--default-point", "fast"), 2
    )


def test_a_triton_model_that_exists_is_refused_before_anything_is_written(
    elfnet: Call, finished: Path, tmp_path: Path
) -> None:
    words = ("export", finished, "--out", tmp_path / "a.onnx", "--triton", tmp_path / "repository")
    (tmp_path / "repository" / "a-with-point").mkdir(parents=True)
    assert "a-with-point exists; give --overwrite" in one_line(elfnet(*words), 2)
    assert not (tmp_path / "a.onnx").exists()
    code, out, _ = elfnet(*words, "--overwrite", "--json")
    assert code == 0
    assert json.loads(out)["triton_models"] == [str(tmp_path / "repository" / name) for name in ("a", "a-with-point")]


def test_files_folders_and_lists_give_the_same(
    elfnet: Call, bundle: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, error = elfnet("predict", bundle, photos)
    assert (code, error) == (0, "")
    records = lines(out)
    assert [Path(str(record["file"])).name for record in records] == [f"{number}.png" for number in range(10)]
    assert set(records[0]) == {"file", "label", "class_index", "confidence", "exit", "cost"}
    by_name = elfnet("predict", bundle, *(record["file"] for record in records), "--batch", 10)
    assert by_name[:2] == (0, out)
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{record['file']}\n" for record in records)))
    assert elfnet("predict", bundle, "-", "--json")[:2] == (0, out)
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    code, out, error = elfnet("predict", bundle, "-")
    assert (code, out) == (1, "")
    assert "no image was named on standard input" in error


@pytest.mark.slow
@pytest.mark.usefixtures("bundle")
def test_a_bundle_answers_with_adjusted_logits(elfnet: Call, finished: Path, photos: Path, tmp_path: Path) -> None:
    run, adjusted = tmp_path / "run", tmp_path / "adjusted.onnx"
    shutil.copytree(finished, run)
    assert elfnet("calibrate", run, "--logit-adjustment", "on")[0] == 0
    family = Family.open(run / "policy.json")
    assert family.adjustment is not None
    leaving_at_once = replace(family.points[0].policy, thresholds=(0.0,) * 3)
    family = replace(family, points=(replace(family.points[0], policy=leaving_at_once),))
    family.save(run / "policy.json")
    assert elfnet("export", run, "--out", adjusted, "--overwrite")[0] == 0
    assert open_one_file(adjusted).family == family
    ours, theirs = (lines(elfnet("predict", model, photos)[1]) for model in (adjusted, run))
    assert {record["exit"] for record in ours} == {1}
    for one, other in zip(ours, theirs, strict=True):
        assert one["label"] == other["label"]
        assert one["confidence"] == pytest.approx(other["confidence"], abs=1e-4)


def test_a_run_answers_like_its_bundle(elfnet: Call, finished: Path, bundle: Path, photos: Path) -> None:
    ours = lines(elfnet("predict", bundle, photos, "--operating-point", "economic")[1])
    theirs = lines(elfnet("predict", finished, photos, "--operating-point", "economic")[1])
    assert [(record["label"], record["exit"]) for record in ours] == [
        (record["label"], record["exit"]) for record in theirs
    ]


@pytest.mark.parametrize("backend", ["onnxruntime", "torch"])
def test_every_backend_computes_bundles_and_runs(
    elfnet: Call, finished: Path, bundle: Path, photos: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [(record["label"], record["exit"]) for record in lines(elfnet("predict", bundle, photos)[1])]
    monkeypatch.setattr("elfnet.export.onnx.export_stages", vars(module)["export_stages"])
    for model in (bundle, finished):
        if (model, backend) == (bundle, "torch"):
            message = one_line(elfnet("predict", model, photos, "--backend", backend), 2)
            assert "holds no torch network; choose backend onnxruntime or openvino" in message
            continue
        code, out, _ = elfnet("predict", model, photos, "--backend", backend, "--threads", 1)
        assert code == 0
        assert [(record["label"], record["exit"]) for record in lines(out)] == wanted


def test_bad_images_are_reported_and_skipped(elfnet: Call, bundle: Path, spoilt: Path) -> None:
    code, out, error = elfnet("predict", bundle, spoilt, spoilt / "nowhere.png", "--batch", 3)
    assert code == 1
    assert [Path(str(record["file"])).name for record in lines(out)] == [f"{n}.png" for n in (0, 2, 4, 6, 7, 8, 9)]
    complaints = error.splitlines()
    assert len(complaints) == 4
    for complaint, name in zip(complaints, ("1.png", "3.png", "5.png", "nowhere.png"), strict=True):
        assert complaint.startswith("elfnet: ")
        assert str(spoilt / name) in complaint


def test_csv_and_out(elfnet: Call, bundle: Path, photos: Path, tmp_path: Path) -> None:
    target = tmp_path / "answers.csv"
    code, out, _ = elfnet("predict", bundle, photos, "--out", target, "--top", 3)
    assert (code, out) == (0, "")
    with target.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10
    assert list(rows[0])[6:] == [f"top_{k}_{what}" for k in (1, 2, 3) for what in ("label", "probability")]
    assert rows[0]["label"] == rows[0]["top_1_label"]
    wanted = lines(elfnet("predict", bundle, photos, "--format", "jsonl")[1])
    assert [row["label"] for row in rows] == [record["label"] for record in wanted]
    before = target.read_bytes()
    assert "exists; give --overwrite" in one_line(elfnet("predict", bundle, photos, "--out", target), 2)
    assert target.read_bytes() == before
    assert elfnet("predict", bundle, photos, "--out", target, "--overwrite", "--json")[0] == 0
    assert len(lines(target.read_text())) == 10


def test_table(elfnet: Call, bundle: Path, photos: Path) -> None:
    code, out, _ = elfnet("predict", bundle, photos, "--format", "table", "--top", 2)
    assert code == 0
    head, *rows = out.splitlines()
    assert head.split() == ["label", "conf.", "exit", "cost", "file"]
    assert len(rows) == 10
    assert str(photos / "0.png") in rows[0]


def test_operating_points_and_budgets(elfnet: Call, finished: Path, bundle: Path, photos: Path) -> None:
    policy = json.loads((finished / "policy.json").read_text())
    cheapest = min(policy["points"], key=lambda point: point["expected"]["mean_cost"])
    budget = cheapest["expected"]["mean_cost"]
    by_budget = elfnet("predict", bundle, photos, "--budget", budget)
    assert by_budget[0] == 0
    assert by_budget[1] == elfnet("predict", bundle, photos, "--operating-point", cheapest["name"])[1]
    capped = lines(elfnet("predict", bundle, photos, "--deepest-exit", 1)[1])
    assert {record["exit"] for record in capped} == {1}
    withheld = lines(elfnet("predict", bundle, photos, "--abstain-below", 1)[1])
    assert {(record["label"], record["class_index"]) for record in withheld} == {(None, None)}


def test_sizes(elfnet: Call, bundle: Path, tmp_path: Path) -> None:
    Image.new("L", (40, 32)).save(tmp_path / "a.png")
    assert elfnet("predict", bundle, tmp_path / "a.png")[0] == 0
    message = one_line(elfnet("predict", bundle, tmp_path / "a.png", "--no-resize"), 1)
    assert "has 40 x 32 pixels, the network reads 32 x 32" in message


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["--operating-point", "fast"], 2, "unknown operating point 'fast'"),
        (["--budget", "0.0001"], 2, "no operating point has a mean cost within 0.0001"),
        (["--budget", "0.5", "--operating-point", "full"], 2, "give one of them"),
        (["--json", "--format", "csv"], 2, "contradict"),
        (["--top", "0"], 2, "--top 0 must be 1 or more"),
        (["--batch", "-1"], 2, "--batch -1 must be 1 or more"),
        (["--deepest-exit", "9"], 2, "deepest_exit=9 must be a whole number in 1..4"),
        (["--abstain-below", "2"], 2, "abstain_below=2.0"),
        (["--backend", "abacus"], 2, "abacus"),
        (["--variant", "int4"], 2, "int4"),
        (["--format", "xml"], 2, "xml"),
    ],
)
def test_wrong_requests(elfnet: Call, bundle: Path, photos: Path, words: list[str], code: int, expected: str) -> None:
    assert expected in one_line(elfnet("predict", bundle, photos, *words), code)


def test_a_run_has_no_variants(elfnet: Call, finished: Path, photos: Path) -> None:
    assert "is a run; export it with --int8" in one_line(elfnet("predict", finished, photos, "--variant", "int8"), 2)


def test_what_is_no_model(elfnet: Call, finished: Path, bundle: Path, photos: Path, tmp_path: Path) -> None:
    assert "there is no bundle" in one_line(elfnet("predict", tmp_path / "nowhere", photos), 2)
    assert "is not a bundle" in one_line(elfnet("predict", tmp_path, photos), 2)
    assert f"make one with 'elfnet export {finished}'" in one_line(elfnet("serve", finished), 2)
    content = bytearray(bundle.read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "damaged.onnx").write_bytes(content)
    assert "damaged" in one_line(elfnet("predict", tmp_path / "damaged.onnx", photos), 1)
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "policy.json").unlink()
    assert "calibrate the run first" in one_line(elfnet("predict", tmp_path / "run", photos), 1)
    assert "calibrate the run first" in one_line(elfnet("export", tmp_path / "run"), 1)
    assert "no run directory" in one_line(elfnet("export", tmp_path / "nowhere"), 2)


def result(file: str, label: str | None = "cat") -> Classified:
    index = None if label is None else 3
    return Classified(file, Prediction(label, index, 0.5, 1, 0.25, (("cat", 0.5), ("dog", 0.25))))


def test_csv_survives_any_file_name() -> None:
    names = ['a,"b"\nc.png', "=cmd()|x.png", "-1.png", "@x.png", os.fsdecode(b"\xff.png"), "plain.png"]
    out = io.StringIO()
    writer = Csv(out, top=3)
    for name in names:
        writer.write(result(name, None))
    out.getvalue().encode()
    rows = list(csv.reader(io.StringIO(out.getvalue())))
    assert {len(row) for row in rows} == {12}
    found = [row[0] for row in rows[1:]]
    assert found == ['a,"b"\nc.png', "./=cmd()|x.png", "./-1.png", "./@x.png", "\ufffd.png", "plain.png"]
    assert rows[1][1:3] == ["", ""]


def test_json_lines_keep_the_file_name() -> None:
    name = os.fsdecode(b"a\n\xff.png")
    out = io.StringIO()
    JsonLines(out, top=2).write(result(name))
    assert out.getvalue().count("\n") == 1
    record = json.loads(out.getvalue().encode())
    assert record["file"] == name
    assert record["top"] == [{"label": "cat", "probability": 0.5}, {"label": "dog", "probability": 0.25}]


def test_columns_print_nothing_that_moves_the_cursor() -> None:
    out = io.StringIO()
    Columns(out, top=1, longest_label=3).write(result("a\x1b[2J\nb.png", None))
    _, row = out.getvalue().splitlines()
    assert row.split() == ["–", "0.500", "1", "0.250", "a?[2J?b.png"]


def test_a_complaint_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with FileProgress(shown=True) as progress:
        progress.complain("a\nb\x1b[2J is no image")
    assert capsys.readouterr().err == "elfnet: a b?[2J is no image\n"
