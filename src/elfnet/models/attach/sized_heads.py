"""Heads for given stages, sized by a dry run."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.models.attach.feature_heads import ChannelPlace, HeadBuilder, build_head
from elfnet.models.attach.undisturbed import undisturbed


@torch.no_grad()
def early_heads(
    stages: Sequence[nn.Module],
    example: Tensor,
    classes: int,
    *,
    head: str | HeadBuilder,
    classifier: str,
    channels: ChannelPlace,
) -> list[nn.Module]:
    """One head for each stage, on the example's device, tried on the stage's features."""
    heads = []
    features = example
    for stage in stages:
        with undisturbed(stage):
            features = stage.eval()(features)
        built = build_head(tuple(features.shape[1:]), classes, head=head, classifier=classifier, channels=channels)
        if not isinstance(built, nn.Module):
            raise RequestError(f"head must give a torch module, not a {type(built).__name__}")
        built.to(features.device)
        with undisturbed(built):
            logits = built.eval()(features)
        if not isinstance(logits, Tensor) or logits.shape != (len(example), classes):
            found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise RequestError(
                f"the head for features of shape {tuple(features.shape[1:])} gives {found}; "
                f"it must give logits of shape (B, {classes})"
            )
        heads.append(built)
    return heads


@torch.no_grad()
def refuse_mixed_classifiers(stages: Sequence[nn.Module], last: nn.Module, example: Tensor) -> None:
    """Cosines at the early exits and something else at the last cannot share a loss or a threshold."""
    features = example
    for stage in stages:
        with undisturbed(stage):
            features = stage.eval()(features)
    with undisturbed(last):
        logits, of_longer = last.eval()(features), last(features * 2)
    if not torch.allclose(logits, of_longer, atol=1e-4) or float(logits.abs().max()) > 1.0 + 1e-4:
        raise RequestError(
            "classifier='cosine' needs a model whose own classifier gives cosines too; "
            "put elfnet.models.heads.CosineClassifier there first, or choose classifier='linear'"
        )
