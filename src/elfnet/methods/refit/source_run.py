"""The finished run that a refit starts from, and refusing one that does not fit."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfnet.data.splits import Splits
from elfnet.errors import RequestError, WorkError
from elfnet.models.build import resolve_defaults
from elfnet.recipe.schema import DataRecipe, ModelRecipe, Recipe
from elfnet.recipe.stages import final_model, total_epochs
from elfnet.run.checkpoint import Checkpoint, load_run_checkpoint
from elfnet.run.directory import RunDirectory, open_run

NOT_THE_EXAMPLES = {
    "sampler",
    "augment",
    "pad",
    "min_crop_area",
    "colour_jitter",
    "policy",
    "randaugment_operations",
    "randaugment_magnitude",
    "cutout",
    "random_erasing",
    "cache",
    "workers",
    "unreadable",
    "max_megapixels",
    "max_megabytes",
    "many_above",
    "few_below",
}
"""Settings of data that change how examples are shown, read or grouped, not which ones there are."""
PLACES = ("directory", "root", "train", "calibration", "test")
"""Where files are: they may have been moved. Whether it is the same data, its fingerprint tells."""
OF_EVERY_NETWORK = ("backbone", "exits", "branches", "head")
OF_EXITS = ("exit_head", "head_filters", "head_stride", "experts")
_OR_BOTH = ", or set refit.epochs, such as 10, to train both stages in one run"


@dataclass(frozen=True)
class SourceRun:
    """A finished run.

    Attributes:
        named: the run as the user named it.
        checkpoint: its last one; tables report that one, too.
    """

    named: str
    recipe: Recipe
    info: dict[str, Any]
    checkpoint: Checkpoint

    def record(self, method: str) -> dict[str, Any]:
        """For the new run's own record."""
        return {
            "method": method,
            "run": self.named,
            "checkpoint_sha256": self.checkpoint.sha256,
            "epochs": self.checkpoint.epochs_done,
        }

    def require_same_examples(self, data: DataRecipe, splits: Splits) -> None:
        """Refuse data whose settings agree and whose content does not."""
        if self.info["data"]["fingerprint"] == splits.fingerprint:
            return
        for name in PLACES:
            there, asked = getattr(self.recipe.data, name), getattr(data, name)
            if there != asked:
                raise RequestError(_differs(self.named, f"data.{name}", there, asked))
        raise WorkError(f"the data is not what the run in {self.named} was trained on; restore it, or name another run")


def open_source(recipe: Recipe, *, out: Path) -> SourceRun:
    """The run that a recipe starts from; refused with one line if it cannot.

    Args:
        out: where the new run goes.
    """
    named = recipe.refit.run
    if not named:
        raise RequestError(
            f"refit.method={recipe.refit.method} starts from a finished run; name it with --from RUN (refit.run in a "
            f"recipe){_OR_BOTH if recipe.refit.method == 'balanced' else ''}"
        )
    run = open_run(Path(named).expanduser())
    if run.root.resolve() == out.resolve():
        raise RequestError(f"the new run would replace the one it starts from, {named}; give another --out")
    source, info = run.recipe(), run.info()
    if "network" in info:
        raise RequestError(
            f"the run in {named} trained a network that was handed in; refit.method={recipe.refit.method} needs the "
            "network of a recipe"
        )
    _require_same_data(named, source.data, recipe.data)
    _require_same_network(named, final_model(source), recipe)
    return SourceRun(named, source, info, _finished(run, source, info))


def _finished(run: RunDirectory, recipe: Recipe, info: dict[str, Any]) -> Checkpoint:
    epochs, way_out = total_epochs(recipe), f"finish it with 'elfnet train --resume --out {run.root}' first"
    if not run.checkpoint("last").is_file():
        raise RequestError(f"the run in {run.root} has 0 of {epochs} epochs; {way_out}")
    last, _ = load_run_checkpoint(run, "last", recipe, info)
    if last.epochs_done < epochs:
        raise RequestError(f"the run in {run.root} has {last.epochs_done} of {epochs} epochs; {way_out}")
    return last


def _require_same_data(named: str, source: DataRecipe, asked: DataRecipe) -> None:
    for name in DataRecipe.model_fields:
        if name in NOT_THE_EXAMPLES or name in PLACES:
            continue
        if getattr(source, name) != getattr(asked, name):
            raise RequestError(_differs(named, f"data.{name}", getattr(source, name), getattr(asked, name)))


def _require_same_network(named: str, source: ModelRecipe, recipe: Recipe) -> None:
    # LWS puts scales before linear classifiers that are there.
    head = "linear" if recipe.refit.method == "lws" else recipe.model.head
    there, asked = resolve_defaults(source), resolve_defaults(recipe.model.model_copy(update={"head": head}))
    for name in (*OF_EVERY_NETWORK, *(OF_EXITS if asked.exits else ())):
        if getattr(there, name) != getattr(asked, name):
            raise RequestError(_differs(named, f"model.{name}", getattr(there, name), getattr(asked, name)))


def _differs(named: str, setting: str, there: object, asked: object) -> str:
    return (
        f"the run in {named} has {setting}={_text(there)}, and this recipe {setting}={_text(asked)}; "
        f"make them the same with --{setting}, or name another run"
    )


def _text(value: object) -> str:
    """As it is written on the command line."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
