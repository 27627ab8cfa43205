"""Feature arrays: read without executing anything, refused by row and column, batched as images of one pixel."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from elfnet.data.describe import listings_at
from elfnet.data.loading.feed import EvaluationFeed, SampledFeed
from elfnet.data.loading.memory import FeatureSource, measured_normalisation
from elfnet.data.sources.arrays import FeatureRows, features
from elfnet.data.splits import make_splits
from elfnet.data.types import SourceRequest
from elfnet.errors import RequestError, WorkError

CPU = torch.device("cpu")


def saved(folder: Path, name: str = "train.npz", **arrays: Any) -> Path:
    np.savez(folder / name, **arrays)
    return folder / name


def numbered(rows: int, width: int = 3) -> Any:
    return np.arange(rows * width, dtype=np.float64).reshape(rows, width)


def test_reads_npz_with_numbers_or_names_for_classes(tmp_path: Path) -> None:
    source = features(SourceRequest(train=saved(tmp_path, X=numbered(4), y=np.array([10, 2, 2, 10]))))
    assert source.class_names == ("2", "10")
    assert source.train.labels_N.tolist() == [1, 0, 0, 1]
    assert source.train.example_shape == (1, 1, 3)
    assert source.train.features_NF.dtype == np.float32
    named = features(SourceRequest(train=saved(tmp_path, X=numbered(2), y=np.array(["flu", "cold"]))))
    assert named.class_names == ("cold", "flu")


def test_splits_and_groups(tmp_path: Path) -> None:
    patients = np.repeat(np.arange(40), 3)
    file = saved(tmp_path, X=numbered(120), y=np.tile([0, 1], 60), patient=patients)
    source = features(SourceRequest(train=file, group_column="patient"))
    splits = make_splits(source, profile="none", calibration_per_class=None)
    owners = [set((part.features_NF[:, 0] // 9).tolist()) for part in (splits.train, splits.calibration, splits.test)]
    assert sum(map(len, owners)) == len(set.union(*owners)) == 40


@pytest.mark.parametrize(
    ("arrays", "kind", "expected"),
    [
        ({"X": numbered(2)}, RequestError, "has no array 'y'; it has: X"),
        ({"X": numbered(2), "y": np.array([0])}, WorkError, "2 rows of features but 1 labels"),
        ({"X": np.zeros(3), "y": np.zeros(3, int)}, WorkError, r"X in .* of shape \(3,\)"),
        ({"X": numbered(2), "y": np.array([0.5, 1])}, WorkError, "y in .* float64"),
        ({"X": np.array([[1.0], [np.nan]]), "y": np.array([0, 1])}, WorkError, "row 1 of .* not finite"),
        ({"X": np.array([[1], [None]], object), "y": np.array([0, 1])}, WorkError, "must be an .npz file of plain"),
        ({"X": numbered(0), "y": np.zeros(0, int)}, WorkError, "has no row"),
        ({"X": numbered(2), "y": np.array([7, 7])}, WorkError, r"train\.npz has only one class \('7'\)"),
    ],
    ids=["no y", "lengths", "flat", "float labels", "nan", "objects", "empty", "one class"],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, arrays: dict[str, Any], kind: type[Exception], expected: str
) -> None:
    with pytest.raises(kind, match=expected):
        features(SourceRequest(train=saved(tmp_path, **arrays)))


def test_other_mistakes(tmp_path: Path) -> None:
    train = saved(tmp_path, X=numbered(4), y=np.array([0, 1, 0, 1]))
    with pytest.raises(RequestError, match=r"needs data\.train"):
        features(SourceRequest())
    with pytest.raises(RequestError, match=r"neither \.npz nor \.parquet"):
        features(SourceRequest(train=tmp_path / "train.txt"))
    with pytest.raises(WorkError, match=r"cannot read .*nowhere\.npz"):
        features(SourceRequest(train=tmp_path / "nowhere.npz"))
    (tmp_path / "broken.npz").write_bytes(train.read_bytes()[:100])
    with pytest.raises(WorkError, match=r"cannot read .*broken\.npz"):
        features(SourceRequest(train=tmp_path / "broken.npz"))
    wider = saved(tmp_path, "wider.npz", X=numbered(2, 4), y=np.array([0, 1]))
    with pytest.raises(WorkError, match=r"wider\.npz has 4 features, .*train\.npz has 3"):
        features(SourceRequest(train=train, test=wider))
    other = saved(tmp_path, "other.npz", X=numbered(2), y=np.array([0, 5]))
    with pytest.raises(WorkError, match=r"row 1 of .*other\.npz has class '5'"):
        features(SourceRequest(train=train, test=other))


@pytest.mark.parametrize("damage", ["one array", "bits", "method", "encrypted"])
def test_an_archive_that_cannot_be_unpacked_is_named(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "train.npz"
    np.savez_compressed(file, X=numbered(400), y=np.arange(400) % 2)
    content = bytearray(file.read_bytes())
    entry, directory = content.find(b"PK\3\4"), content.find(b"PK\1\2")
    if damage == "one array":
        np.save(tmp_path / "train.npy", numbered(4))
        content = bytearray((tmp_path / "train.npy").read_bytes())
    elif damage == "bits":
        start = entry + 30 + content[entry + 26] + content[entry + 28]  # behind the header, the name and what is extra
        content[start] = 0xFF
    elif damage == "method":
        content[entry + 8] = content[directory + 10] = 99
    else:
        content[entry + 6] |= 1
        content[directory + 8] |= 1
    file.write_bytes(content)
    with pytest.raises(WorkError, match=r"cannot read .*train\.npz: .*; it must be an \.npz file of plain arrays"):
        features(SourceRequest(train=file))


def test_a_text_file_is_not_advised_to_be_unpickled(tmp_path: Path) -> None:
    file = tmp_path / "train.npz"
    file.write_text("hello")
    with pytest.raises(WorkError, match=r"it holds no arrays, or Python objects; it must be an \.npz file") as caught:
        features(SourceRequest(train=file))
    assert "pickle" not in str(caught.value)


def test_parquet_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns: dict[str, list[Any]] = {"a": [1, 2], "label": ["x", "y"], "b": [0.5, 4]}
    parquet = ModuleType("pyarrow.parquet")
    parquet.read_schema = lambda _file: SimpleNamespace(names=list(columns))  # type: ignore[attr-defined]
    table = SimpleNamespace(column=lambda name: SimpleNamespace(to_pylist=lambda: columns[name]))
    parquet.read_table = lambda _file, columns: table  # type: ignore[attr-defined]  # noqa: ARG005
    monkeypatch.setitem(sys.modules, "pyarrow", ModuleType("pyarrow"))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    source = features(SourceRequest(train=tmp_path / "t.parquet"))
    assert source.train.features_NF.tolist() == [[1, 0.5], [2, 4]]
    assert source.class_names == ("x", "y")
    there = listings_at(tmp_path / "t.parquet", SourceRequest(), features=True)
    assert (there["train"].label_names, there["train"].labels_N.tolist()) == (("x", "y"), [0, 1])
    columns["b"] = ["no", "numbers"]
    with pytest.raises(WorkError, match="without numbers"):
        features(SourceRequest(train=tmp_path / "t.parquet"))
    with pytest.raises(RequestError, match="no column 'icd'"):
        features(SourceRequest(train=tmp_path / "t.parquet", label_column="icd"))


def test_batches_are_standardised_images_of_one_pixel() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(5, 3, (50, 4)).astype(np.float32)
    values[:, 2] = 7  # constant: shifted only
    rows = FeatureRows(values, np.arange(50) % 3)
    normalisation = measured_normalisation(rows)
    source = FeatureSource(rows, normalisation, device=CPU)
    evaluation = EvaluationFeed(source, len(rows), batch_size=16)
    found = torch.cat(list(evaluation))
    assert found.shape == (50, 4, 1, 1)
    assert len(evaluation) == 4
    assert evaluation.rows().tolist() == list(range(50))
    assert torch.allclose(found.mean(dim=0), torch.zeros(4, 1, 1), atol=1e-5)
    assert found.std(dim=0, correction=0).flatten().tolist() == pytest.approx([1, 1, 0, 1], abs=1e-5)
    training = SampledFeed(source, rows.labels_N, batch_size=16, seed=0, device=CPU)
    for epoch in (0, 1):
        parts = list(training.epoch(epoch))
        assert [len(part.labels_b) for part in parts] == [16, 16, 16, 2]
        order = torch.cat([part.images for part in parts])
        place = [int((found == row).all(dim=(1, 2, 3)).nonzero()) for row in order]
        assert sorted(place) == list(range(50))
        assert torch.cat([part.labels_b for part in parts]).tolist() == [row % 3 for row in place]
        again = torch.cat([part.images for part in training.epoch(epoch)])
        assert torch.equal(order, again)
