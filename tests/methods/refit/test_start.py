"""Which parameters are trained in cRT and LWS."""

import pytest
import torch

from elfnet.methods.refit.build import TRAINED, freeze_what_stays
from elfnet.models.build import build_network
from elfnet.models.heads import Head, ScaledClassifier
from elfnet.models.staged import training_mode


def test_scaled_classifier_multiplies_each_class_by_its_scale() -> None:
    torch.manual_seed(0)
    classifier = ScaledClassifier(3, 2)
    features = torch.randn(4, 3)
    with torch.no_grad():
        plain = features @ classifier.weight.T + classifier.bias
        assert torch.allclose(classifier(features), plain, atol=1e-6)
        classifier.scale.copy_(torch.tensor([2.0, -0.5]))
        assert torch.allclose(classifier(features), torch.stack([2 * plain[:, 0], -plain[:, 1] / 2], dim=1), atol=1e-6)


@pytest.mark.parametrize(("how", "head", "parts"), [("crt", "linear", 2), ("crt", "cosine", 1), ("lws", "scaled", 1)])
@pytest.mark.parametrize("exits", [True, False])
def test_only_this_learns_and_the_rest_is_in_evaluation_mode(how: str, head: str, parts: int, exits: bool) -> None:
    network = build_network("resnet8", classes=3, exits=exits, head=head, head_filters=4)
    freeze_what_stays(how, network)
    training_mode(network)
    learning = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
    assert len(learning) == parts * network.exits
    assert all(TRAINED[how][0](name) for name in learning)
    for module in (*network.stages, *(head.trunk for head in network.heads if isinstance(head, Head))):
        assert not any(isinstance(part, torch.nn.BatchNorm2d) and part.training for part in module.modules())
    assert all(isinstance(head, Head) and head.classifier.training for head in network.heads)
