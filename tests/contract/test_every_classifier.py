"""What every registered classifier must do."""

# Shapes: B batch, F features, C classes

import pytest
import torch

from elfnet.losses.base import LOSSES, build_loss
from elfnet.models.heads import CLASSIFIERS, exit_head, final_head


@pytest.fixture(params=CLASSIFIERS.names())
def kind(request: pytest.FixtureRequest) -> str:
    torch.manual_seed(0)
    return str(request.param)


def test_maps_features_to_one_float32_logit_a_class(kind: str) -> None:
    classifier = CLASSIFIERS[kind](6, 4)
    logits_BC = classifier(torch.randn(5, 6))
    assert logits_BC.shape == (5, 4)
    assert logits_BC.dtype == torch.float32


def test_an_example_does_not_see_its_neighbours(kind: str) -> None:
    classifier = CLASSIFIERS[kind](6, 4)
    features_BF = torch.randn(5, 6)
    assert torch.allclose(classifier(features_BF)[2:3], classifier(features_BF[2:3]), atol=1e-6)


def test_every_parameter_learns(kind: str) -> None:
    classifier = CLASSIFIERS[kind](6, 4)
    classifier(torch.randn(5, 6)).square().sum().backward()
    for name, parameter in classifier.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0, name


def test_features_of_zero_give_finite_logits_and_gradients(kind: str) -> None:
    """After a ReLU all features of an example may be zero."""
    classifier = CLASSIFIERS[kind](6, 4)
    features_BF = torch.zeros(2, 6, requires_grad=True)
    logits_BC = classifier(features_BF)
    logits_BC.sum().backward()
    assert logits_BC.isfinite().all()
    assert features_BF.grad is not None
    assert features_BF.grad.isfinite().all()


def test_serves_as_early_and_as_last_head(kind: str) -> None:
    features = torch.randn(3, 6, 8, 8)
    assert final_head(6, 4, kind=kind)(features).shape == (3, 4)
    assert exit_head(6, 4, kind=kind, filters=5, stride=2)(features).shape == (3, 4)


def test_some_classifier_suits_every_loss() -> None:
    for name in LOSSES:
        assert ("cosine" if build_loss(name, [2, 1]).needs_cosines else "linear") in CLASSIFIERS.names()
