"""Recordings reproduce batch size, mode, precision, device and constants; some code is refused."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from elfnet.errors import RequestError
from elfnet.models.attach.attach import attach_exits
from elfnet.models.attach.trace import trace
from elfnet.models.staged import StagedNetwork


class Glue(nn.Module):
    """Everything that a recording with numbers in it would get wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(12, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.fc = nn.Linear(16, 5)
        self.shift = nn.Parameter(torch.randn(16))
        self.ramp = torch.arange(16.0)  # not registered
        self.register_buffer("gain", torch.full((16,), 0.5), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        batch = x.shape[0]
        x = x.to(self.a.weight.dtype).reshape(batch * 2, 6).view(batch, 12)
        x = functional.dropout(self.a(x), 0.5 if self.training else 0.1, self.training)
        mask = torch.zeros(batch, 16, device=x.device, dtype=x.dtype)
        mask[:, 3:] = 1.0
        mask[:, 5].fill_(2.0)
        x = self.b(x) * mask + self.ramp * self.get_buffer("gain")
        first, second = (functional.relu(x, inplace=True) + self.shift).chunk(2, dim=1)
        x = self.c(torch.cat([second, first], dim=1))
        return self.fc(x.clamp_(min=-1))  # type: ignore[no-any-return]


@pytest.fixture
def examples() -> Tensor:
    return torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))


def _attached(model: nn.Module, at: list[str], examples: Tensor) -> StagedNetwork:
    torch.manual_seed(0)
    return attach_exits(model, at, example=examples, head="mean")


def _last_exit(network: StagedNetwork, images: Tensor) -> Tensor:
    features = images
    for stage in network.stages:
        features = stage(features)
    logits: Tensor = network.heads[-1](features)
    return logits


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch", [1, 3, 7])
def test_numbers_follow_batch_size_and_mode(examples: Tensor, training: bool, batch: int) -> None:
    model = Glue()
    network = _attached(model, ["a", "b"], examples).train(training)
    images = torch.randn(batch, 3, 2, 2, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(2)
    expected = model.train(training)(images)
    torch.manual_seed(2)
    torch.testing.assert_close(_last_exit(network, images), expected)


def test_constants_follow_precision_and_device(examples: Tensor) -> None:
    network = _attached(Glue(), ["a", "b"], examples).eval()
    expected = network(examples)
    double = copy.deepcopy(network).double()(examples.double())
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), expected)
    assert network.to("meta")(examples.to("meta")).device.type == "meta"


def test_what_is_not_saved_by_the_model_is_not_saved_by_the_network(examples: Tensor) -> None:
    network = _attached(Glue(), ["a", "b"], examples)
    keys = {key for key in network.state_dict() if key.startswith("stages")}
    assert keys == {f"stages.{k}.{n}.{w}" for k, n in enumerate("abc") for w in ("weight", "bias")} | {"stages.2.shift"}


class _PastDropout(nn.Module):
    """Dropout returns its input in evaluation mode, but not in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.second, self.fc = (
            nn.Linear(12, 12),
            nn.Dropout(0.5),
            nn.Linear(12, 12),
            nn.Linear(12, 5),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x.flatten(1))
        return self.fc(self.second(self.drop(x) + x).relu())  # type: ignore[no-any-return]


def test_what_comes_before_and_after_dropout_is_told_apart(examples: Tensor) -> None:
    model = _PastDropout().train()
    network = _attached(model, [":add"], examples).train()
    torch.manual_seed(1)
    expected = model(examples)
    torch.manual_seed(1)
    assert torch.equal(_last_exit(network, examples), expected)
    with pytest.raises(RequestError, match="cannot cut after 'drop': 2 tensors are live there"):
        attach_exits(model, ["drop"], example=examples)


class _Branch(nn.Module):
    def __init__(self, decide: Callable[[nn.Module, Tensor], bool]) -> None:
        super().__init__()
        self.first, self.second, self.decide = nn.Linear(12, 12), nn.Linear(12, 12), decide

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if self.decide(self, x):
            x = x * 2
        return self.second(x)  # type: ignore[no-any-return]


class _NoGradient(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 12), nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = self.first(x)
        return self.second(x)  # type: ignore[no-any-return]


class _ThroughNumpy(_NoGradient):
    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.second(x + torch.from_numpy(x.detach().numpy() * 2))  # type: ignore[no-any-return]


class _HiddenFunction(_NoGradient):
    """An autograd function is not recorded; it is noticed because its result changes with the input."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.second(x + _Double.apply(x).detach())  # type: ignore[no-any-return,no-untyped-call]


class _Double(torch.autograd.Function):
    @staticmethod
    def forward(_context: object, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(_context: object, gradient: Tensor) -> Tensor:
        return gradient * 2


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        (_Branch(lambda _, x: bool(x.mean() > 0)), "reads a tensor's values"),
        (_Branch(lambda module, _: module.training), "depends on batch size, mode or precision"),
        (_Branch(lambda _, x: len(x) > 2), "depends on batch size, mode or precision"),
        (_Branch(lambda _, x: x.dtype == torch.float64), "depends on batch size, mode or precision"),
        (_NoGradient(), "switches gradients off"),
        (_ThroughNumpy(), "reads a tensor's values"),
    ],
)
def test_code_that_cannot_be_reproduced_is_kept_whole(inner: nn.Module, reason: str, examples: Tensor) -> None:
    """There is no cut inside the module; all others work."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 12), inner, nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 5))
    assert reason in trace(model, examples).kept_whole["2"]
    network = _attached(model, ["1", "2"], examples).train()
    for batch in (1, 4):
        torch.testing.assert_close(_last_exit(network, examples[:batch]), model(examples[:batch]))
    with pytest.raises(RequestError, match=r"cannot cut after '2.first': it is inside '2', which is kept whole"):
        attach_exits(model, ["2.first"], example=examples)
    with pytest.raises(RequestError, match=rf"cannot be taken apart: .*{reason}.*elfnet.from_blocks"):
        attach_exits(inner, example=examples.flatten(1))


def test_a_function_torch_does_not_show_is_never_frozen(examples: Tensor) -> None:
    model = nn.Sequential(nn.Flatten(), _HiddenFunction(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 5))
    assert "1" in trace(model, examples).kept_whole
    network = _attached(model, ["1"], examples)
    torch.testing.assert_close(_last_exit(network, examples * 3), model(examples * 3))


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (lambda x: (x, x), "returns a tuple; it must return a tensor of logits"),
        (lambda x: x[:, :, None], r"returns logits of shape \(4, 5, 1\)"),
        (lambda x: x.sum(0, keepdim=True), r"returns logits of shape \(1, 5\)"),
    ],
)
def test_outputs_that_are_not_logits(output: Callable[[Tensor], object], message: str, examples: Tensor) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(12, 5)

        def forward(self, x: Tensor) -> object:
            return output(self.fc(x.flatten(1)))

    with pytest.raises(RequestError, match=message):
        attach_exits(Odd(), example=examples)


def test_modules_called_while_another_tensor_is_live_are_not_opened(examples: Tensor) -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(12, 12), nn.ReLU())

        def forward(self, x: Tensor) -> Tensor:
            return x + self.inner(x)  # type: ignore[no-any-return]

    model = nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(12, 12), Residual()), nn.Linear(12, 5))
    assert trace(model, examples).opened == {"1", "1.1"}
