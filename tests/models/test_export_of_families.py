"""The stages of a large network of each family in ONNX, for any batch."""

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import pytest
import torch

from elfnet.export.onnx import export_stages
from elfnet.models.build import build_network


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["resnet18", "resnet50", "resnext50_32x4d", "densenet121"])
def test_exported_stages_give_the_same_logits(backbone: str) -> None:
    torch.manual_seed(0)
    network = build_network(backbone, classes=5).eval()
    images = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        expected_EBC = network.logits(images).numpy()
    sessions = [onnxruntime.InferenceSession(graph) for graph in export_stages(network, (3, 32, 32))]
    for count in (1, 3):
        features = images[:count].numpy()
        for k, session in enumerate(sessions):
            outputs = session.run(None, {session.get_inputs()[0].name: features})
            named = dict(zip((o.name for o in session.get_outputs()), outputs, strict=True))
            tolerance = 1e-4 * float(np.abs(expected_EBC[k]).max())
            assert np.abs(named["logits"] - expected_EBC[k, :count]).max() <= tolerance
            features = next((value for name, value in named.items() if name != "logits"), features)
