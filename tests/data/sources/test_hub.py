"""A data set of the hub, through a stand-in for the package `datasets`."""

import io
import sys
from types import ModuleType
from typing import Any, Self

import numpy as np
import pytest
from PIL import Image as Pillow

from elfnet.data.images.decode import Limits, UnreadableImageError
from elfnet.data.images.files import Decoder
from elfnet.data.sources.hub import hub
from elfnet.data.splits import make_splits
from elfnet.data.types import SourceRequest
from elfnet.errors import RequestError, WorkError


class Image:
    def __init__(self, decode: bool = True) -> None:
        self.decode = decode


class ClassLabel:
    def __init__(self, names: list[str]) -> None:
        self.names = names


class Rows:
    """As far as a split of the library is used: features, columns by name, rows by number, casting a column."""

    _fingerprint = "f00"

    def __init__(self, features: dict[str, Any], columns: dict[str, list[Any]]) -> None:
        self.features, self._columns = features, columns

    def cast_column(self, name: str, kind: Image) -> Self:
        assert name == "picture"
        assert not kind.decode, "images are decoded by ourselves, within limits"
        return self

    def __getitem__(self, key: str | int) -> Any:
        if isinstance(key, str):
            return self._columns[key]
        return {name: values[key] for name, values in self._columns.items()}


def png(value: int) -> dict[str, Any]:
    file = io.BytesIO()
    Pillow.fromarray(np.full((4, 4, 3), value, np.uint8)).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


def rows(labels: list[int]) -> Rows:
    features = {"picture": Image(), "label": ClassLabel(["cat", "dog"])}
    return Rows(features, {"picture": [png(row) for row in range(len(labels))], "label": labels})


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the stand-in finds under the name "pets"."""
    content: dict[str, Any] = {"train": rows([0, 1] * 10), "test": rows([1, 0])}
    datasets = ModuleType("datasets")

    def load_dataset(name: str) -> dict[str, Any]:
        if name != "pets":
            raise FileNotFoundError(f"no {name}\nsecond line")
        return content

    vars(datasets).update(Image=Image, ClassLabel=ClassLabel, load_dataset=load_dataset)
    monkeypatch.setitem(sys.modules, "datasets", datasets)
    return content


@pytest.mark.usefixtures("found")
def test_splits_and_images() -> None:
    source = hub(SourceRequest(hub="pets", image_size=4))
    assert source.class_names == ("cat", "dog")
    assert source.test is not None
    assert source.calibration is None
    splits = make_splits(source, profile="none", calibration_per_class=2)
    assert len(splits.train) == 16
    row = int(splits.train_indices[5])
    content = splits.train.encoded(5, Limits())
    with Pillow.open(io.BytesIO(content)) as image:
        assert image.getpixel((0, 0)) == (row, row, row)
    assert splits.train.name(5) == f"pets train, row {row}"
    with pytest.raises(UnreadableImageError, match=r"row .* has more than 10 bytes"):
        Decoder(splits.train, Limits(max_bytes=10)).part(5, lambda _w, _h: pytest.fail("was opened"))
    assert hub(SourceRequest(hub="pets", image_size=4)).train.stamps().shape == (20, 2)


def test_validation_is_calibration(found: dict[str, Any]) -> None:
    found["validation"] = rows([0, 1, 1])
    source = hub(SourceRequest(hub="pets"))
    assert source.calibration is not None
    assert source.calibration.labels_N.tolist() == [0, 1, 1]


def test_groups_stay_together(found: dict[str, Any]) -> None:
    def grouped(part: Rows, names: list[Any]) -> Rows:
        return Rows({**part.features, "who": None}, {**part._columns, "who": names})

    found["train"] = grouped(found["train"], [f"patient {row // 4}" for row in range(20)])
    with pytest.raises(RequestError, match=r"pets test has no column 'who'; it has: picture.* data\.group_column"):
        hub(SourceRequest(hub="pets", group_column="who"))
    found["test"] = grouped(found["test"], ["one", "patient 3"])
    with pytest.raises(WorkError, match="group 'patient 3' is in both train and test"):
        hub(SourceRequest(hub="pets", group_column="who"))
    found["test"] = grouped(found["test"], ["one", None])
    with pytest.raises(WorkError, match="row 1 of pets test has no who"):
        hub(SourceRequest(hub="pets", group_column="who"))
    del found["test"]
    splits = make_splits(hub(SourceRequest(hub="pets", group_column="who")), profile="none")
    owners = [set((part.row_N // 4).tolist()) for part in (splits.train, splits.calibration, splits.test)]
    assert sum(map(len, owners)) == len(set.union(*owners)) == 5
    assert splits.train.groups_N is not None
    assert splits.train.groups_N.tolist() == (splits.train.row_N // 4).tolist()


def test_what_is_missing_is_named(found: dict[str, Any]) -> None:
    with pytest.raises(WorkError, match=r"cannot load 'dogs' from the hub \(no dogs\); check the name"):
        hub(SourceRequest(hub="dogs"))
    with pytest.raises(WorkError, match=r"no class column 'breed'; .*data\.label_column: label"):
        hub(SourceRequest(hub="pets", label_column="breed"))
    with pytest.raises(RequestError, match=r"needs data\.hub"):
        hub(SourceRequest())
    del found["train"]
    with pytest.raises(WorkError, match="has no split train; it has: test"):
        hub(SourceRequest(hub="pets"))
    found["train"] = Rows({"label": ClassLabel(["cat"])}, {"label": [0]})
    with pytest.raises(WorkError, match="has no image column; it has: label"):
        hub(SourceRequest(hub="pets"))


def test_without_the_package_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(RequestError, match=r"data\.hub=pets needs the package datasets: pip install datasets"):
        hub(SourceRequest(hub="pets"))
