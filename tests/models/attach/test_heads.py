"""Heads for every shape of features."""

import pytest
import torch
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.models.attach.heads import ChannelPlace, TokenHead, build_head
from elfnet.models.heads import CosineClassifier, Head


def _built(shape: tuple[int, ...], head: str = "auto", channels: ChannelPlace = "auto") -> nn.Module:
    return build_head(shape, 3, head=head, classifier="linear", channels=channels).eval()


@pytest.mark.parametrize(
    ("shape", "kind", "width"),
    [
        ((6, 4, 4), Head, 6),
        ((4, 4, 6), TokenHead, 6),
        ((9, 6), TokenHead, 6),
        ((6,), TokenHead, 6),
        ((4, 4, 4), Head, 4),
    ],
)
def test_auto_suits_the_shape(shape: tuple[int, ...], kind: type, width: int) -> None:
    head = _built(shape)
    assert isinstance(head, kind)
    assert head(torch.randn(2, *shape)).shape == (2, 3)
    classifier = head.get_submodule("classifier")
    assert isinstance(classifier, nn.Linear)
    assert classifier.in_features == width


def test_separable_is_lighter_than_plain_convolutions() -> None:
    sizes = [sum(p.numel() for p in _built((32, 8, 8), kind).parameters()) for kind in ("mean", "separable", "conv")]
    assert sizes == sorted(sizes)
    assert sizes[2] > 4 * sizes[1]


def _naive(head: TokenHead, tokens: list[Tensor]) -> Tensor:
    normed = [(t - t.mean()) / (t.var(unbiased=False) + 1e-5).sqrt() for t in tokens]
    classifier = head.get_submodule("classifier")
    assert isinstance(classifier, nn.Linear)
    return classifier.weight @ (sum(normed, torch.zeros(())) / len(normed)) + classifier.bias


def test_mean_over_tokens_whatever_the_layout() -> None:
    features = torch.randn(1, 2, 3, 6)
    tokens = [features[0, i, j] for i in range(2) for j in range(3)]
    last = build_head((2, 3, 6), 3, head="mean", classifier="linear", channels="last")
    assert isinstance(last, TokenHead)
    torch.testing.assert_close(last(features)[0], _naive(last, tokens), rtol=1e-4, atol=1e-5)
    first = build_head((6, 2, 3), 3, head="mean", classifier="linear", channels="first")
    first.load_state_dict(last.state_dict())
    torch.testing.assert_close(first(features.permute(0, 3, 1, 2)), last(features))
    flat = build_head((6, 6), 3, head="mean", classifier="linear", channels="auto")
    flat.load_state_dict(last.state_dict())
    torch.testing.assert_close(flat(features.flatten(1, 2)), last(features))


def test_class_token_reads_the_first_token_only() -> None:
    head = _built((4, 6), "class-token")
    tokens = torch.randn(1, 4, 6)
    other = tokens.clone()
    other[:, 1:] = 0
    assert torch.equal(head(tokens), head(other))
    assert isinstance(head, TokenHead)
    torch.testing.assert_close(head(tokens)[0], _naive(head, [tokens[0, 0]]), rtol=1e-4, atol=1e-5)


def test_logits_are_float32_under_autocast() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert _built((4, 6))(torch.randn(2, 4, 6).bfloat16()).dtype == torch.float32


def test_cosine_classifier() -> None:
    head = build_head((4, 6), 3, head="auto", classifier="cosine", channels="auto")
    assert isinstance(head.get_submodule("classifier"), CosineClassifier)


def test_convolutions_need_maps() -> None:
    with pytest.raises(RequestError, match=r"head='conv' needs feature maps with the channels first.*\(4, 6\)"):
        _built((4, 6), "conv")
    with pytest.raises(RequestError, match="head='separable' needs feature maps"):
        _built((4, 4, 6), "separable")
    assert isinstance(_built((4, 4, 6), "separable", "first"), Head)
