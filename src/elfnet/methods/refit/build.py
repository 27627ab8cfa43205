"""Refits as recipes configure them: computes those that need no training, and prepares networks for the others.

`FITTED` refits (tau-norm, logit adjustment, re-sampling) need no training loop. `TRAINED` refits (cRT, LWS, balanced)
start from the weights of a finished run and train the classifiers, or their scales, only.
"""

# Shapes: E exits, C classes

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from elfnet.data.loading.build import evaluation_batches
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.splits import Splits
from elfnet.data.types import Examples
from elfnet.errors import RequestError
from elfnet.methods.refit.classifiers import LabelledFeed, classifier_tensor
from elfnet.methods.refit.post_hoc import adjust_biases, normalise_weights, tau_remarks, taus_record
from elfnet.methods.refit.resample import RESAMPLERS, refit_on_resampled
from elfnet.models.build import resolve_defaults
from elfnet.models.staged import StagedNetwork, freeze_all_but
from elfnet.recipe.roles import role_of
from elfnet.recipe.schema import DataRecipe, ModelRecipe, Recipe
from elfnet.recipe.stages import final_model, total_epochs
from elfnet.run.checkpoint import Checkpoint, is_finished, load_run_checkpoint
from elfnet.run.directory import RunDirectory, open_run
from elfnet.run.info import FitInfo, RefitInfo, RunInfo
from elfnet.run.log import resume_command

FITTED = ("tau-norm", "logit-adjustment", *RESAMPLERS)
"""Refits that need no training loop, by `refit.method`."""

NETWORK_SETTINGS = ("backbone", "exits", "branches", "head")
EXIT_SETTINGS = ("exit_head", "head_filters", "head_stride", "experts")


def learns_in_crt(name: str) -> bool:
    """Whether cRT trains this tensor, from new initial weights: every tensor of a classifier."""
    return bool(classifier_tensor(name))


def learns_in_lws(name: str) -> bool:
    """Whether LWS trains this tensor, from new initial weights: the scales of the classifiers."""
    return classifier_tensor(name) == "scale"


TRAINED: dict[str, tuple[Callable[[str], bool], str]] = {
    "balanced": (learns_in_crt, "classifiers"),
    "crt": (learns_in_crt, "classifiers"),
    "lws": (learns_in_lws, "scales of the classifiers"),
}
"""Refits that are trained, by `refit.method`: a predicate of tensors that are trained, and their description."""


def fit_classifiers(
    recipe: Recipe, network: StagedNetwork, splits: Splits, normalisation: Normalisation
) -> tuple[FitInfo, list[str]]:
    """Refit the classifiers of a trained network in place, with a method of `FITTED`.

    Only the training and the calibration split are read.

    Returns:
        The record for run.json, and remarks for the log.
    """
    refit = recipe.refit
    device = next(network.parameters()).device

    def feed(examples: Examples) -> LabelledFeed:
        return LabelledFeed(evaluation_batches(recipe.data, examples, normalisation, device=device), examples)

    counts = splits.class_counts_C.tolist()
    if refit.method == "tau-norm":
        choice_E = normalise_weights(network, feed(splits.calibration), taus=refit.taus)
        return taus_record(choice_E), tau_remarks(choice_E, refit.taus)
    if refit.method == "logit-adjustment":
        choice_E = adjust_biases(network, feed(splits.calibration), taus=refit.taus, class_counts=counts)
        return taus_record(choice_E), tau_remarks(choice_E, refit.taus)
    return refit_on_resampled(
        network,
        feed(splits.train),
        resample=RESAMPLERS[refit.method],
        neighbours=refit.neighbours,
        seed=recipe.train.seed,
        weight_decay=recipe.train.weight_decay,
        class_names=splits.class_names,
    )


def start_from_run(
    recipe: Recipe, network: StagedNetwork, splits: Splits, *, out: Path
) -> tuple[RefitInfo, Checkpoint] | None:
    """Load the weights of the run that the recipe starts from.

    Args:
        recipe: one with a refit that is trained.
        network: a newly built network. Tensors that the refit trains keep their initial weights.
        out: the directory of the new run.

    Returns:
        The record for run.json and the last checkpoint of the source run; None if the recipe refits in a second stage
        of its own run.

    Raises:
        RequestError: the run does not fit the recipe, or is not finished.
        WorkError: the data has changed since the run was trained.
    """
    if is_second_stage(recipe):
        return None
    source = open_source(recipe, out=out)
    source.require_same_examples(recipe.data, splits)
    what = take_over(recipe.refit.method, network, source.checkpoint.weights)
    summary = f"started from {source.named} ({source.checkpoint.epochs_done} epochs); only the {what} learn"
    return source.record(recipe.refit.method, summary), source.checkpoint


def is_second_stage(recipe: Recipe) -> bool:
    """Whether the refit is the second stage of the same run, instead of starting from another run."""
    return recipe.refit.method == "balanced" and not recipe.refit.run


def take_over(method: str, network: StagedNetwork, weights: Mapping[str, Tensor]) -> str:
    """Load all weights except those that the refit trains, which keep their initial values.

    Returns:
        A description of the tensors that are trained.
    """
    learns, what = TRAINED[method]
    own = network.state_dict()
    network.load_state_dict({name: tensor if learns(name) else weights[name] for name, tensor in own.items()})
    return what


def freeze_what_stays(method: str, network: StagedNetwork) -> None:
    """Freeze every tensor that a refit of `TRAINED` does not train."""
    freeze_all_but(network, TRAINED[method][0])


@dataclass(frozen=True)
class SourceRun:
    """A finished run that a refit starts from.

    Attributes:
        named: the path of the run, as the user wrote it.
        recipe: its recipe.
        info: the content of its run.json.
        checkpoint: its last checkpoint.
    """

    named: str
    recipe: Recipe
    info: RunInfo
    checkpoint: Checkpoint

    def record(self, method: str, summary: str, fitted: FitInfo | None = None) -> RefitInfo:
        """The section of run.json of the new run: this source, and what was fitted to its features."""
        return RefitInfo(
            method=method,
            run=self.named,
            checkpoint_sha256=self.checkpoint.sha256,
            epochs=self.checkpoint.epochs_done,
            summary=summary,
            **({} if fitted is None else {name: getattr(fitted, name) for name in fitted.model_fields_set}),
        )

    def require_same_examples(self, data: DataRecipe, splits: Splits) -> None:
        """Check that the data has the content that the run was trained on.

        Raises:
            RequestError: the data differs, and so does a setting of its location.
            WorkError: the data differs although the settings are equal.
        """
        if self.info.data.fingerprint == splits.fingerprint:
            return
        for name in (name for name in DataRecipe.model_fields if role_of(f"data.{name}") in ("location", "file")):
            expected, found = getattr(self.recipe.data, name), getattr(data, name)
            if expected != found:
                raise RequestError(_mismatch(self.named, f"data.{name}", expected, found))
        self.info.require_same_data(splits.fingerprint, where=self.named, way_out="or name another run")


def open_source(recipe: Recipe, *, out: Path) -> SourceRun:
    """Open the run that a recipe starts from.

    Args:
        out: the directory of the new run.

    Raises:
        RequestError: no run is named, or the run is not finished, or it does not fit the recipe.
    """
    named = recipe.refit.run
    if not named:
        two_stages = ", or set refit.epochs, such as 10, to train both stages in one run"
        raise RequestError(
            f"refit.method={recipe.refit.method} starts from a finished run; name it with --from RUN (refit.run in a "
            f"recipe){two_stages if recipe.refit.method == 'balanced' else ''}"
        )
    run = open_run(Path(named).expanduser())
    if run.root.resolve() == out.resolve():
        raise RequestError(f"the new run would replace the one it starts from, {named}; give another --out")
    source, info = run.recipe(), run.info()
    if info.network is not None:
        raise RequestError(
            f"the run in {named} trained a network passed as network=; refit.method={recipe.refit.method} needs a run "
            "whose recipe describes the network"
        )
    _require_same_data(named, source.data, recipe.data)
    _require_same_network(named, final_model(source), recipe)
    return SourceRun(named, source, info, _load_finished(run, source, info))


def _load_finished(run: RunDirectory, recipe: Recipe, info: RunInfo) -> Checkpoint:
    """The last checkpoint of a run; refused if the run is not finished."""
    epochs, hint = total_epochs(recipe), f"finish it first with: {resume_command(run.root)}"
    if not run.checkpoint("last").is_file():
        raise RequestError(f"the run in {run.root} has 0 of {epochs} epochs; {hint}")
    last, _ = load_run_checkpoint(run, "last", recipe, info)
    if not is_finished(recipe, last):
        raise RequestError(f"the run in {run.root} has {last.epochs_done} of {epochs} epochs; {hint}")
    return last


def _require_same_data(named: str, source: DataRecipe, data: DataRecipe) -> None:
    for name in DataRecipe.model_fields:
        # Files may move; the fingerprint tells whether the data is equal.
        if role_of(f"data.{name}") in ("location", "file", "machine", "presentation"):
            continue
        if getattr(source, name) != getattr(data, name):
            raise RequestError(_mismatch(named, f"data.{name}", getattr(source, name), getattr(data, name)))


def _require_same_network(named: str, source: ModelRecipe, recipe: Recipe) -> None:
    # LWS adds scales to the linear classifiers of the run.
    head = "linear" if recipe.refit.method == "lws" else recipe.model.head
    expected, found = resolve_defaults(source), resolve_defaults(recipe.model.model_copy(update={"head": head}))
    for name in (*NETWORK_SETTINGS, *(EXIT_SETTINGS if found.exits else ())):
        if getattr(expected, name) != getattr(found, name):
            raise RequestError(_mismatch(named, f"model.{name}", getattr(expected, name), getattr(found, name)))


def _mismatch(named: str, setting: str, expected: object, found: object) -> str:
    return (
        f"the run in {named} has {setting}={_format(expected)}, and this recipe {setting}={_format(found)}; "
        f"make them equal with --{setting}, or name another run"
    )


def _format(value: object) -> str:
    """Format a value as it is written on the command line."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
