"""The Python blocks of every page run, page by page in one namespace, unless they say why they cannot."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import elfnet

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"(?:^<!-- not runnable: (?P<reason>.+?) -->\n)?^```python\n(?P<code>.*?)^```$", re.M | re.S)
SHOWN_FROM_FILES = {"own-loop.md"}
"""Pages whose blocks are files of `examples`, which have tests of their own."""


def _blocks(page: Path) -> list[tuple[str | None, str]]:
    return [(found["reason"], found["code"]) for found in BLOCK.finditer(page.read_text())]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory, tiny_settings: dict[str, Any]) -> Path:
    """What the pages assume: two runs, the export of one, some photos."""
    folder = tmp_path_factory.mktemp("pages")
    for name, method in (("elf", "elf-ce-drw"), ("plain", "ce-drw")):
        recipe = elfnet.load_recipe(f"digits/{method}", {**tiny_settings, "train.epochs": 1})
        run = elfnet.train_recipe(recipe, folder / "runs" / name)
        elfnet.measure_run(run, elfnet.calibrate_run(run))
    exported = elfnet.export_run(elfnet.open_run(folder / "runs" / "elf"), measure_memory=None)
    (folder / "elf.onnx").write_bytes(exported.path.read_bytes())
    for name in ("cat.png", "dog.png", "dog.jpg", "photo.jpg"):
        Image.fromarray(np.full((40, 40, 3), 90, dtype=np.uint8)).save(folder / name)
    return folder


def _page_with_code() -> list[Path]:
    return [page for page in PAGES if _blocks(page) and page.name not in SHOWN_FROM_FILES]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", _page_with_code(), ids=lambda page: page.stem)
def test_blocks_run(page: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from torch import nn

    monkeypatch.chdir(workplace)
    images = torch.rand(4, 1, 32, 32)
    layers = [nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(392, 10)]
    namespace: dict[str, Any] = {"__name__": "page", "model": nn.Sequential(*layers), "example": images}
    for reason, code in _blocks(page):
        if reason is None:
            exec(compile(code, str(page), "exec"), namespace)  # noqa: S102 (the pages are ours)


def test_most_blocks_can_run() -> None:
    reasons = [reason for page in _page_with_code() for reason, _ in _blocks(page)]
    assert sum(reason is None for reason in reasons) >= 9
    assert all(reason is None or len(reason) > 5 for reason in reasons)
