"""Refusing to write where something else is, and to resume what is not the same run."""

from typing import Any

from lightning_fabric import Fabric

from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.data.splits import Splits
from elfnet.errors import RequestError, WorkError
from elfnet.models.from_recipe import settled
from elfnet.recipe.schema import Recipe
from elfnet.train.machine import Machine, fabric_precision


def check_directory(run: RunDirectory, recipe: Recipe, *, resume: bool, overwrite: bool) -> None:
    if resume and overwrite:
        raise RequestError("--resume and --overwrite contradict each other; give one of them")
    if run.exists() and overwrite:
        return
    if run.exists() and not resume:
        raise RequestError(f"{run.root} holds a run already; give --resume, --overwrite, or another --out")
    if run.exists():
        _require_same_recipe(run, recipe)
        # The log is written before the checkpoint, so its second epoch tells that there was one.
        if not run.checkpoint("last").is_file() and len(run.log()) > 1:
            raise WorkError(f"{run.checkpoint('last')} is missing; put it back, or start over with --overwrite")
    elif resume and not run.root.exists():
        raise RequestError(f"there is no run in {run.root} to resume; leave --resume out to start one")
    elif run.root.exists() and (not run.root.is_dir() or any(run.root.iterdir())):
        raise RequestError(f"{run.root} exists and is not a run; give another --out")


def _require_same_recipe(run: RunDirectory, recipe: Recipe) -> None:
    # What a recipe leaves to the backbone may be written out in the other: the same run in other words.
    there, asked = (
        content.model_copy(update={"model": settled(content.model)}).model_dump() for content in (run.recipe(), recipe)
    )
    for section, fields in asked.items():
        for name, value in fields.items():
            if there[section][name] != value:
                raise RequestError(
                    f"the run in {run.root} has {section}.{name}={there[section][name]}, not {value}; "
                    "resume it as it is, or start another with --out"
                )


def require_same_data(run: RunDirectory, info: dict[str, Any], splits: Splits) -> None:
    if info["data"]["fingerprint"] != splits.fingerprint:
        raise WorkError(
            f"the data is not what the run in {run.root} began with; restore it, or start another with --out"
        )


def require_same_precision(machine: Machine, fabric: Fabric) -> None:
    """`auto` may mean another precision on another node."""
    here = fabric.strategy.precision.precision
    if here != fabric_precision(machine.precision):
        raise RequestError(
            f"the first process computes in {machine.precision}, and process {fabric.global_rank} would in {here}; "
            "set train.precision=float32"
        )
