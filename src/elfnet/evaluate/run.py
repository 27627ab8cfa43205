"""Compute the exit table of a run: run its network over a split once, and store the table in the run directory."""

# Shapes: N examples, E exits, B batch, C classes

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elfnet.data.build import load_splits
from elfnet.data.loading.build import evaluation_batches, normalisation_of, training_batches
from elfnet.data.loading.feed import TrainingFeed
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.splits import Splits
from elfnet.data.types import Examples
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import SPLITS, ExitTable
from elfnet.exits.policy import Measure
from elfnet.models.flops import count_cost
from elfnet.models.staged import StagedNetwork, evaluation_mode, reset_statistics
from elfnet.recipe.schema import DataRecipe, ModelRecipe, Recipe
from elfnet.recipe.stages import final_model, loss_scale
from elfnet.run.checkpoint import load_run_checkpoint, network_of_run, require_fits, tensors_sha256
from elfnet.run.directory import RunDirectory


@torch.inference_mode()
def logits_of(network: StagedNetwork, batches: Iterable[Tensor], *, precision: str = "float32") -> NDArray[np.float32]:
    """Compute logits (N, E, C), float32, in evaluation mode. The mode of the network is restored afterwards."""
    parts = []
    with evaluation_mode(network):
        for images in batches:
            with torch.autocast(images.device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16"):
                # Not __call__: a network that is compiled for training would be compiled again for evaluation.
                logits_EBC = network.forward(images)
            parts.append(logits_EBC.transpose(0, 1).float().cpu())
    logits_NEC: NDArray[np.float32] = torch.cat(parts).numpy()
    return logits_NEC


@torch.inference_mode()
def answers_at_full_depth(
    network: StagedNetwork, batches: Iterable[Tensor], *, precision: str = "float32"
) -> NDArray[np.int64]:
    """Predicted class of every example at the last exit, shape (N,).

    No other head runs, and no logits are kept: with thousands of classes they would take gigabytes.
    """
    parts = []
    with evaluation_mode(network):
        for images in batches:
            with torch.autocast(images.device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16"):
                features: Any = images
                stages, heads = zip(*network.pairs(), strict=True)
                for stage in stages:
                    features = stage(features)
                logits_BC = heads[-1](features)
            parts.append(logits_BC.float().argmax(dim=1).cpu())
    answers_N: NDArray[np.int64] = torch.cat(parts).numpy()
    return answers_N


@torch.no_grad()
def estimate_statistics(network: StagedNetwork, batches: TrainingFeed) -> None:
    """Estimate the batch-norm statistics of a network again, in place, from one augmented epoch."""
    reset_statistics(network)
    network.train()
    try:
        for batch in batches.epoch(0):
            network.forward(batch.images)
    finally:
        batches.close()
    network.eval()


def evaluate_run(
    run: RunDirectory,
    split: str = "test",
    *,
    checkpoint: str = "last",
    device: str = "cpu",
    again: bool = False,
    fresh_statistics: bool = False,
    network: StagedNetwork | None = None,
) -> ExitTable:
    """Return the exit table of a split, float32; computed unless the run directory has that of this checkpoint.

    Args:
        split: `train`, `calibration` or `test`.
        checkpoint: `last`, `best` on the calibration split, or `first-stage`, before a second stage.
        device: on which the network runs.
        again: compute the table even if it exists.
        fresh_statistics: first estimate the batch-norm statistics again (for runs trained with `drop`). Such a table
            does not belong to the weights of the checkpoint, so it is not stored.
        network: the network passed to `train_recipe`, for a run that trained one; it is copied. Not needed to read an
            existing table.

    Raises:
        RequestError: the split is unknown, or the network does not fit.
        WorkError: the data or the checkpoint is not that of the run.

    Example:
        >>> from elfnet import evaluate_run, open_run
        >>> evaluate_run(open_run("runs/first"), "test").split
        'test'
    """
    if split not in SPLITS:
        raise RequestError(f"there is no split {split!r}; choose from: {', '.join(SPLITS)}")
    recipe, info = run.recipe(), run.info()
    if network is not None:
        require_fits(info, network, where=run.root)
    saved, model = load_run_checkpoint(run, checkpoint, recipe, info)
    file = run.table(split, checkpoint)
    if file.is_file() and not again and not fresh_statistics:
        kept = ExitTable.open(file)
        if kept.checkpoint_sha256 == saved.sha256 and kept.head_cost_E is not None:
            return kept
    network = network_of_run(model, info, network, where=run.root)
    network.load_state_dict(dict(saved.weights))
    network.to(torch.device(device), memory_format=torch.channels_last)  # type: ignore[call-overload]
    splits = load_splits(recipe.data)
    info.require_same_data(splits.fingerprint, where=run.root)
    normalisation = Normalisation(info.data.mean, info.data.std)
    sha256 = saved.sha256
    if fresh_statistics:
        batches = training_batches(
            recipe.data,
            splits,
            normalisation,
            batch_size=recipe.train.batch_size,
            seed=0,
            device=torch.device(device),
        )
        estimate_statistics(network, batches)
        sha256 = tensors_sha256(network.state_dict())
    table = table_of(
        network,
        splits,
        split,
        data=recipe.data,
        normalisation=normalisation,
        checkpoint_sha256=sha256,
        confidence_scale=_confidence_scale(recipe, model),
        confidence_measure=recipe.exits.confidence,
        many_above=recipe.data.many_above,
        few_below=recipe.data.few_below,
    )
    if not fresh_statistics:
        table.save(file)
    return table


def _confidence_scale(recipe: Recipe, model: ModelRecipe) -> float:
    """The factor of the logits in eq. 5. The recipe has that of the final heads; those of a first stage may differ."""
    if model.head == final_model(recipe).head:
        return recipe.exits.infer_confidence_scale
    return loss_scale(recipe)


def table_of(
    network: StagedNetwork,
    splits: Splits,
    split: str,
    *,
    data: DataRecipe,
    checkpoint_sha256: str,
    normalisation: Normalisation | None = None,
    confidence_scale: float = 1.0,
    confidence_measure: Measure = "probability",
    many_above: int = 100,
    few_below: int = 20,
) -> ExitTable:
    """Run a network over a split without augmentation, and return its exit table."""
    examples: Examples = {"train": splits.train, "calibration": splits.calibration, "test": splits.test}[split]
    if not len(examples):
        without = f"cross_fitting={data.cross_fitting}" if data.cross_fitting else f"protocol={data.protocol}"
        raise RequestError(f"data.{without} has no {split} split; evaluate train or test")
    device = next(network.parameters()).device
    normalisation = normalisation or normalisation_of(data, splits)
    batches = evaluation_batches(data, examples, normalisation, device=device)
    logits_NEC = logits_of(network, batches)
    height, width, channels = examples.example_shape
    cost = count_cost(network, (channels, height, width))
    return ExitTable(
        logits_NEC=logits_NEC,
        labels_N=examples.labels_N[batches.rows()],
        cost_E=np.array(cost.relative),
        head_cost_E=np.array(cost.heads) / cost.plain,
        plain_multiply_adds=cost.plain,
        class_counts_C=splits.class_counts_C,
        class_names=splits.class_names,
        split=split,
        checkpoint_sha256=checkpoint_sha256,
        confidence_scale=confidence_scale,
        confidence_measure=confidence_measure,
        many_above=many_above,
        few_below=few_below,
        experts=network.experts,
    )
