"""Heads: cosine and linear classifiers, float32 logits whatever the backbone's precision."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from elfnet.errors import RequestError
from elfnet.models.heads import CosineClassifier, Head, LinearClassifier, exit_head, final_head


def _features(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def test_cosines_equal_a_naive_loop() -> None:
    torch.manual_seed(0)
    classifier = CosineClassifier(6, 4)
    features_BF = _features(5, 6)
    with torch.no_grad():
        cosines_BC = classifier(features_BF)
    for b in range(5):
        for c in range(4):
            expected = functional.cosine_similarity(features_BF[b], classifier.weight[c].detach(), dim=0)
            assert float(cosines_BC[b, c]) == pytest.approx(float(expected), abs=1e-6)


def test_cosines_do_not_depend_on_the_length_of_features_or_weights() -> None:
    torch.manual_seed(0)
    classifier = CosineClassifier(6, 4)
    features_BF = _features(50, 6)
    cosines_BC = classifier(features_BF)
    assert cosines_BC.abs().max() <= 1 + 1e-6
    assert torch.allclose(classifier(features_BF * 1000), cosines_BC, atol=1e-6)
    assert torch.allclose(classifier(features_BF / 1000), cosines_BC, atol=1e-6)
    with torch.no_grad():
        classifier.weight.mul_(7)
    assert torch.allclose(classifier(features_BF), cosines_BC, atol=1e-6)


def test_cosine_of_a_class_direction_is_one_and_of_nothing_is_zero() -> None:
    torch.manual_seed(0)
    classifier = CosineClassifier(6, 4)
    assert torch.allclose(classifier(classifier.weight).diagonal(), torch.ones(4), atol=1e-6)
    assert torch.equal(classifier(torch.zeros(2, 6)), torch.zeros(2, 4))


def test_cosine_classifier_has_no_bias_and_starts_at_unit_length() -> None:
    classifier = CosineClassifier(6, 4)
    assert [name for name, _ in classifier.named_parameters()] == ["weight"]
    assert torch.allclose(classifier.weight.norm(dim=1), torch.ones(4))


def test_linear_classifier_is_torchs_with_a_bias() -> None:
    classifier = LinearClassifier(6, 4)
    features_BF = _features(5, 6)
    assert torch.allclose(classifier(features_BF), features_BF @ classifier.weight.T + classifier.bias, atol=1e-6)


def test_final_head_pools_and_classifies() -> None:
    head = final_head(6, 4, kind="linear")
    features = _features(2, 6, 3, 5)
    pooled_BF = torch.stack([torch.stack([channel.mean() for channel in example]) for example in features])
    assert torch.allclose(head(features), head.classifier(pooled_BF), atol=1e-6)


@pytest.mark.parametrize(("stride", "size"), [(1, 8), (2, 2)])
def test_exit_head_has_two_convolutions_of_the_given_stride(stride: int, size: int) -> None:
    head = exit_head(6, 4, kind="linear", filters=5, stride=stride)
    assert head.trunk(_features(2, 6, 8, 8)).shape == (2, 5, size, size)
    convolutions = [module for module in head.modules() if isinstance(module, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels, c.kernel_size) for c in convolutions] == [(6, 5, (3, 3)), (5, 5, (3, 3))]
    assert (head.trunk(_features(2, 6, 8, 8)) >= 0).all()


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_logits_are_float32_under_bfloat16_autocast(kind: str) -> None:
    torch.manual_seed(0)
    head = exit_head(3, 4, kind=kind, filters=8, stride=2).eval()
    seen: list[torch.dtype] = []
    head.trunk.register_forward_hook(lambda _module, _inputs, output: seen.append(output.dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits_BC = head(_features(2, 3, 8, 8))
    assert logits_BC.dtype == torch.float32
    assert seen == [torch.bfloat16], "the trunk should run in the backbone's precision"
    # Rounded to bfloat16, these values would not survive: the classifier itself must run in float32.
    assert not torch.equal(logits_BC, logits_BC.bfloat16().float())


def test_a_bfloat16_feature_map_gives_float32_logits() -> None:
    head = Head(nn.Identity(), LinearClassifier(3, 4))
    assert head(_features(2, 3, 2, 2).bfloat16()).dtype == torch.float32


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(RequestError, match=r"unknown model.head 'cosin'; did you mean 'cosine'\?"):
        final_head(6, 4, kind="cosin")


@pytest.mark.parametrize(("stride", "size"), [(1, 7), (2, 2)])
def test_separable_head_is_depthwise_then_pointwise_twice(stride: int, size: int) -> None:
    torch.manual_seed(0)
    head = exit_head(6, 4, kind="linear", filters=5, stride=stride, trunk="separable").train()
    shapes = [tuple(p.shape) for p in head.trunk.parameters() if p.dim() == 4]
    assert shapes == [(6, 1, 3, 3), (5, 6, 1, 1), (5, 1, 3, 3), (5, 5, 1, 1)]
    features = _features(2, 6, 7, 7)
    assert head.trunk(features).shape == (2, 5, size, size)
    # A depthwise and a pointwise convolution in a row are one convolution with a kernel of rank one per input channel.
    depthwise, pointwise = (head.get_parameter(f"trunk.{i}.weight") for i in (0, 1))
    kernel = pointwise * depthwise.transpose(0, 1)
    first = head.trunk[1](head.trunk[0](features))  # type: ignore[index]
    assert torch.allclose(first, functional.conv2d(features, kernel, stride=stride, padding=1), atol=1e-5)


@pytest.mark.parametrize("kind", ["linear", "cosine"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_network_moved_to_another_type_computes_in_it(kind: str, dtype: torch.dtype) -> None:
    """float64 keeps all its digits; half precision still gives float32 logits."""
    torch.manual_seed(0)
    head = exit_head(6, 4, kind=kind, filters=8, stride=2).eval()
    features = _features(3, 6, 8, 8)
    with torch.no_grad():
        expected = head(features)
        logits = head.to(dtype)(features.to(dtype))
    assert logits.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(logits.float(), expected, rtol=0, atol=1e-5 if dtype == torch.float64 else 0.1)


def test_float64_is_not_rounded_on_the_way() -> None:
    head = final_head(2, 3, kind="linear").double()
    features = torch.full((1, 2, 1, 1), 1 + 1e-12, dtype=torch.float64)
    with torch.no_grad():
        head.classifier.weight.fill_(1.0)  # type: ignore[operator]
        head.classifier.bias.zero_()  # type: ignore[operator]
        assert float(head(features)[0, 0]) == pytest.approx(2 + 2e-12, abs=1e-15)


@pytest.mark.parametrize("side", [3, 4, 8, 10])
def test_grid_head_is_a_hidden_layer_on_sixteen_pixels(side: int) -> None:
    torch.manual_seed(0)
    head = exit_head(6, 4, kind="linear", filters=5, stride=2, trunk="grid").eval()
    features = _features(2, 6, side, side)
    pixels = functional.adaptive_avg_pool2d(features, 4).flatten(1)
    hidden = functional.relu(pixels @ head.get_parameter("trunk.2.weight").flatten(1).T + head.trunk[2].bias)  # type: ignore[index]
    assert head.trunk(features).shape == (2, 5, 1, 1)
    assert torch.allclose(head(features), head.classifier(hidden), atol=1e-5)


def test_grid_head_drops_inputs_in_training_only() -> None:
    torch.manual_seed(0)
    head = exit_head(6, 4, kind="linear", filters=5, stride=2, trunk="grid").eval()
    features = _features(8, 6, 8, 8)
    assert torch.equal(head(features), head(features))
    head.train()
    assert not torch.equal(head(features), head(features))
