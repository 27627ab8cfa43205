"""Export of a network from a loop of one's own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elfnet import build_network, export_network, load
from elfnet.errors import RequestError

LABELS = np.arange(40) % 2
ABOUT: dict[str, Any] = {"class_names": ["a", "b"], "class_counts": [30, 10], "mean": [0.5], "std": [0.5]}


def _images() -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 256, (40, 32, 32, 1), dtype=np.uint8)


@pytest.mark.slow
def test_the_file_answers_as_the_network_does(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = build_network("resnet8", classes=2, image_channels=1)
    images = _images()
    family = export_network(network, images, torch.from_numpy(LABELS), tmp_path / "own.onnx", **ABOUT)
    assert family.split == "calibration"
    assert family.n == 40
    model = load(tmp_path / "own.onnx")
    assert model.class_names == ("a", "b")
    inputs = torch.from_numpy((images / 255 - 0.5).transpose(0, 3, 1, 2) / 0.5).float()
    with torch.no_grad():
        expected = network.eval().logits(inputs)[-1].softmax(dim=1)
    answers = model.classify(images, operating_point="full")
    np.testing.assert_allclose(answers.probability_NC, expected.numpy(), atol=1e-4)


@pytest.mark.parametrize(
    ("images", "labels", "changed", "message"),
    [
        (_images() / 255, LABELS, {}, r"images are float64 of shape \(40, 32, 32, 1\); they must be uint8"),
        (_images()[..., 0], LABELS, {}, r"shape \(40, 32, 32\)"),
        (_images(), LABELS[:3], {}, "there are 40 images and 3 labels"),
        (
            _images(),
            LABELS,
            {"class_counts": [30]},
            "the network has 2 classes, there are 2 class_names and 1 class_counts",
        ),
        (_images(), LABELS, {"mean": [0.5] * 3}, "images have 1 channel, mean has 3 numbers and std has 1"),
        (_images(), LABELS * 0, {}, "labels must be of at least two classes, from 0 to 1"),
        (_images(), LABELS * 2, {}, "labels must be of at least two classes, from 0 to 1"),
    ],
)
def test_what_is_refused(images: Any, labels: Any, changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    network = build_network("resnet8", classes=2, image_channels=1)
    with pytest.raises(RequestError, match=message):
        export_network(network, images, labels, tmp_path / "own.onnx", **(ABOUT | changed))
    assert not list(tmp_path.iterdir())


def test_a_network_without_exits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="network is a Linear without exits; give what attach_exits"):
        export_network(torch.nn.Linear(3, 2), _images(), LABELS, tmp_path / "own.onnx", **ABOUT)  # type: ignore[arg-type]
