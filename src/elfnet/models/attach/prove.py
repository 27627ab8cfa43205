"""Proving that a staged network computes what the original computes."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.models.attach.outputs import logits_in
from elfnet.models.attach.undisturbed import undisturbed
from elfnet.models.staged import StagedNetwork

RELATIVE = 1e-4
SEED = 0


@torch.no_grad()
def prove_equal(network: StagedNetwork, original: nn.Module, example: Tensor) -> None:
    """Refuse unless all exits run and the last gives the original's logits, on one example and on several, in
    evaluation mode and (with the same random numbers) in training mode.
    """
    several = example if len(example) > 1 else torch.cat([example, example])
    for images in (several, several[:1]):
        _compare(network, original, images, training=False, run=lambda images: network.logits(images)[-1])
    _compare(network, original, several, training=True, run=lambda images: _last_exit(network, images))


def _last_exit(network: StagedNetwork, images: Tensor) -> Tensor:
    """The early heads left out: they would draw random numbers that the original does not draw."""
    features = images
    for stage in network.stages:
        features = stage(features)
    logits: Tensor = network.heads[-1](features)
    return logits


def _compare(
    network: StagedNetwork, original: nn.Module, images: Tensor, *, training: bool, run: Callable[[Tensor], Tensor]
) -> None:
    results = []
    for module, forward in ((original, original), (network, run)):
        with undisturbed(module):
            module.train(training)
            torch.manual_seed(SEED)
            results.append(logits_in(forward(images.clone())))
    expected, found = results
    mode = "training" if training else "evaluation"
    if expected is None or found is None or expected.shape != found.shape:
        raise RequestError(f"the staged {type(original).__name__} gives no such logits as the original in {mode} mode")
    largest = float((expected - found).abs().max())
    if not largest <= RELATIVE * max(float(expected.abs().max()), 1.0):
        raise RequestError(
            f"the staged {type(original).__name__} differs from the original in {mode} mode (logits by {largest:.2g}); "
            "cut elsewhere, or give the stages by hand with elfnet.from_blocks"
        )
