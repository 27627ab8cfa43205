"""Features are what the classifiers really read."""

import torch

from elfnet.evaluate.run import logits_of
from elfnet.methods.refit.classifiers import (
    LabelledFeed,
    classifier_features,
    classifier_tensor,
    linear_classifiers,
)
from elfnet.models.staged import StagedNetwork


def test_classifiers_of_features_are_the_logits(network: StagedNetwork, calibration: LabelledFeed) -> None:
    network.train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    features_E, labels_N = classifier_features(network, calibration)
    assert network.training, "the mode is left as it was"
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    logits_NEC = torch.from_numpy(logits_of(network, calibration.batches))
    assert labels_N.tolist() == calibration.labels().tolist()
    for k, (features_NF, classifier) in enumerate(zip(features_E, linear_classifiers(network), strict=True)):
        found = classifier(features_NF.float()).detach()
        assert torch.allclose(found, logits_NEC[:, k], rtol=1e-4, atol=1e-5)
    # The hooks have been removed.
    assert not any(classifier._forward_pre_hooks for classifier in linear_classifiers(network))


def test_names() -> None:
    assert classifier_tensor("heads.12.classifier.weight") == "weight"
    assert classifier_tensor("heads.0.classifier.scale") == "scale"
    for other in ("heads.0.trunk.0.weight", "stages.3.classifier.0.weight", "heads.0.trunk.frequent.classifier.bias"):
        assert classifier_tensor(other) == ""
