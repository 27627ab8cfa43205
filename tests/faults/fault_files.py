"""Damaged files of every kind that elfnet reads: each is refused in one line, or read as it was written."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from elfnet.calibrate.point_family import Family
from elfnet.data.sources.cifar_pickle import read_pickled_dict
from elfnet.data.sources.lists import read_annotations, read_list
from elfnet.data.sources.tables import read_table
from elfnet.errors import ElfnetError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.inference.bundle.read import open_bundle
from elfnet.recipe.load import load_stored_recipe
from elfnet.run.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from elfnet.run.directory import RunDirectory
from elfnet.run.info import RunInfo
from elfnet.run.json_file import read_model, write_json
from elfnet.run.log import write_log
from fault_case import Outcomes, damaged

STORED = Path(__file__).parents[1] / "integration" / "stored"
Read = Callable[[Path], Any]
"""Reads a file; returns what must be as it was written, or None if damage cannot be noticed."""

FILES = {
    "checkpoint": "last.safetensors",
    "exit table": "test.safetensors",
    "bundle": "bundle",
    "policy": "policy.json",
    "toml": "recipe.toml",
    "run.json": "run.json",
    "log": "log.jsonl",
    "list": "list.txt",
    "table": "table.csv",
    "annotations": "annotations.json",
    "pickle": "batch.pickle",
}

HOSTILE = (
    b"[" * 50_000,
    b'{"a":' * 50_000,
    b"a = " + b"[" * 50_000,
    b"9" * 6000,
    b"a = " + b"9" * 6000,
    b"1e999",
    b"\0" * 99,
)
"""Content that is tried in place of every tenth damaged file."""


def run(seed: int, count: int, directory: Path) -> Outcomes:
    """Nothing but `ElfnetError` of one line may come out, and what has a hash is read unchanged or not at all."""
    outcomes = Outcomes()
    readers = _readers(directory)
    intact = {name: (file.read_bytes(), read(file)) for name, (file, read) in readers.items()}
    names = sorted(readers)
    for case in range(count):
        rng = np.random.default_rng((seed, case))
        name = names[case % len(names)]
        file, read = readers[name]
        content, expected = intact[name]
        hostile = rng.integers(10) == 0
        file.write_bytes(HOSTILE[int(rng.integers(len(HOSTILE)))] if hostile else damaged(content, rng))
        try:
            found = read(file)
        except ElfnetError as error:
            outcomes.fail(f"case {case}, {name}: {error}") if "\n" in str(error) else outcomes.add(f"{name} refused")
        except Exception as error:
            outcomes.fail(f"case {case}, {name}: {error!r}")
        else:
            outcomes.add(f"{name} read") if found == expected else outcomes.fail(f"case {case}, {name}: read otherwise")
    return outcomes


def write_intact(directory: Path) -> dict[str, Path]:
    """Write an intact file of each kind; returns the files by kind."""
    import torch

    files = {name: directory / file for name, file in FILES.items()}
    weights = {"weight": torch.arange(24.0).view(4, 6), "steps": torch.tensor(3)}
    save_checkpoint(Checkpoint("a network", 1, weights, progress={"best_score": 0.5}), files["checkpoint"])
    _table().save(files["exit table"])
    begun = RunDirectory(STORED / "begun-run")
    files["bundle"].write_bytes((STORED / "bundle.elfnet").read_bytes())
    files["toml"].write_bytes(begun.recipe_file.read_bytes())
    # Written again, with the hashes that the stored files of an earlier version do not have.
    Family.open(STORED / "policy.json").save(files["policy"])
    write_json(files["run.json"], begun.info().to_json())
    write_log(files["log"], begun.log())
    files["list"].write_text("".join(f"class{k % 3}/{k}.png {k % 3}\n" for k in range(12)))
    files["table"].write_text("path,label\n" + "".join(f"{k}.png,class {k % 3}\n" for k in range(12)))
    annotations = {
        "images": [{"id": k, "file_name": f"{k}.jpg"} for k in range(6)],
        "annotations": [{"image_id": k, "category_id": k % 2} for k in range(6)],
        "categories": [{"id": k, "name": f"class {k}"} for k in range(2)],
    }
    files["annotations"].write_text(json.dumps(annotations))
    batch = {"data": np.arange(48, dtype=np.uint8).reshape(4, 12), "labels": [0, 1, 2, 3]}
    files["pickle"].write_bytes(pickle.dumps(batch, protocol=2))
    return files


def _readers(directory: Path) -> dict[str, tuple[Path, Read]]:
    """An intact file of each kind in `directory`, with its reader."""
    readers: dict[str, Read] = {
        "checkpoint": lambda file: load_checkpoint(file).sha256,
        "exit table": lambda file: ExitTable.open(file).logits_NEC.tobytes(),
        "bundle": lambda file: str(open_bundle(file).manifest),
        "policy": lambda file: Family.open(file).to_dict(),
        "toml": _without_hash(load_stored_recipe),
        "run.json": lambda file: read_model(file, RunInfo),
        "log": _without_hash(lambda _: RunDirectory(directory).log()),
        "list": _without_hash(lambda file: read_list(file, directory)),
        "table": _without_hash(lambda file: read_table(file, directory, path_column="path", label_column="label")),
        "annotations": _without_hash(lambda file: read_annotations(file, directory)),
        "pickle": _without_hash(lambda file: read_pickled_dict(file.read_bytes(), where=str(file))),
    }
    return {name: (file, readers[name]) for name, file in write_intact(directory).items()}


def _without_hash(read: Read) -> Read:
    """The file has no hash: some damage gives another valid content."""

    def read_and_forget(file: Path) -> None:
        read(file)

    return read_and_forget


def _table() -> ExitTable:
    rng = np.random.default_rng(0)
    return ExitTable(
        logits_NEC=rng.normal(size=(6, 2, 3)).astype(np.float32),
        labels_N=np.arange(6) % 3,
        cost_E=np.array([0.5, 1.0]),
        head_cost_E=np.array([0.1, 0.1]),
        plain_multiply_adds=100,
        class_counts_C=np.array([9, 6, 3]),
        class_names=("a", "b", "c"),
        split="test",
        checkpoint_sha256="0" * 64,
        confidence_scale=1.0,
        many_above=8,
        few_below=4,
    )
