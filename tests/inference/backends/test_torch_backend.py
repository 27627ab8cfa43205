"""What is particular to torch: precision, threads, and the network that stays the caller's."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from elfnet.evaluate.run import logits_of
from elfnet.inference.backends.torch import TorchBackend
from elfnet.models.staged import StagedNetwork

pytestmark = pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)


def test_bfloat16_is_that_of_evaluation(exported_network: StagedNetwork, exported_images: NDArray[np.float32]) -> None:
    images = exported_images[:12]
    exact_NEC = logits_of(exported_network, [torch.from_numpy(images)])
    expected_NEC = logits_of(exported_network, [torch.from_numpy(images)], precision="bfloat16")
    backend = TorchBackend(exported_network, precision="bfloat16")
    features = backend.start(images)
    for k in range(backend.exits):
        features, logits_BC = backend.run(k, features)
        assert logits_BC.dtype == np.float32
        # Layouts differ, so sums are rounded in another order; the error of bfloat16 itself is many times larger.
        assert logits_BC == pytest.approx(expected_NEC[:, k], abs=0.05)
        assert features.dtype == torch.bfloat16
    assert not np.allclose(expected_NEC, exact_NEC, atol=1e-3)


def test_layout_survives_keep(exported_network: StagedNetwork, exported_images: NDArray[np.float32]) -> None:
    backend = TorchBackend(exported_network)
    features = backend.run_without_head(1, backend.run_without_head(0, backend.start(exported_images[:9])))
    kept = backend.keep(features, np.array([0, 5, 6]))
    assert kept.is_contiguous(memory_format=torch.channels_last)
    assert not kept.requires_grad


def test_several_tensors_between_stages(exported_network: StagedNetwork) -> None:
    pair = (torch.arange(4.0)[:, None], torch.arange(8.0).view(4, 2))
    fine, coarse = TorchBackend(exported_network).keep(pair, np.array([3, 1]))
    assert fine.tolist() == [[3.0], [1.0]]
    assert coarse.tolist() == [[6.0, 7.0], [2.0, 3.0]]


def test_threads(exported_network: StagedNetwork) -> None:
    before = torch.get_num_threads()
    try:
        TorchBackend(exported_network, threads=before + 1)
        assert torch.get_num_threads() == before + 1
        TorchBackend(exported_network)
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)
