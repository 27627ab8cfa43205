"""The forward pass in training: examples exit by the training rule; gradient equilibrium; the choice of mixing.

With `after_exit=mask` all stages run on all examples, and a mask marks the exits that each example visits. With `drop`
later stages run only on the examples that have not exited. Both return the same tensors to the loss. They differ in
batch norm: with `drop`, later layers compute statistics over the remaining examples only.
"""

# Shapes: E exits, B batch, C classes, N examples of the training split

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from elfnet.data.types import Ints
from elfnet.exits.training_rule import TrainingRule
from elfnet.methods.bbn import BilateralForward, CumulativeSchedule
from elfnet.methods.mixing import (
    CutMix,
    ManifoldForward,
    ManifoldMixup,
    MinorityCutMix,
    Mixing,
    MixSchedule,
    Mixup,
)
from elfnet.models.staged import StagedNetwork, reset_compiler, same_features
from elfnet.recipe.schema import Recipe, TrainRecipe

# Smaller batches run uncompiled: torch.compile makes a separate graph for a batch of one, and such batches are rare.
MIN_COMPILED_BATCH = 2

Run = Callable[[nn.Module, Any], Any]


class ExitingForward(nn.Module):
    """Computes the logits of every exit, and which examples visit it.

    Args:
        network: stages and heads.
        rule: when examples exit; None: all examples visit all exits (joint training, or a plain network).
        after_exit: whether an example is masked or dropped after its exit.
        equilibrium: apply gradient equilibrium (see `GradientEquilibrium`).
    """

    def __init__(
        self,
        network: StagedNetwork,
        rule: TrainingRule | None,
        *,
        after_exit: Literal["mask", "drop"] = "mask",
        equilibrium: bool = False,
    ) -> None:
        super().__init__()
        self.network = network
        self.rule = rule
        self.after_exit = after_exit
        self._fork = GradientEquilibrium(network.exits, network.experts) if equilibrium else same_features
        self._compiled_batch: int | None = None
        self._run_full: Run = _full_batch
        self._run_part: Run = _part_of_batch

    def compile_for(self, batch_size: int, *, image_sizes: int = 1) -> None:
        """Compile in place, with graphs that do not depend on earlier batches.

        A resumed run then uses the same graphs. With `mask` there is one static graph for full batches; a smaller last
        batch runs uncompiled. With `drop` there are two graphs per stage and head: a static one for full batches, and
        one for all smaller batches. Progressive resizing has one of each per image size.

        Args:
            batch_size: examples in a full batch of this process.
            image_sizes: number of different image sizes in the run.
        """
        reset_compiler(graphs=4 * self.network.exits * image_sizes)
        self._compiled_batch = batch_size
        if self.after_exit == "mask" or self.rule is None:
            self.network.compile(dynamic=False)
        else:
            self._run_full = torch.compile(_full_batch, dynamic=False)
            self._run_part = torch.compile(_part_of_batch)

    def forward(self, images: Tensor, target_B: Tensor) -> tuple[Tensor, Tensor]:
        """Run the network on a batch, which may be empty: a process may get no example of the last batch.

        Returns:
            Logits (E, B, C), with `drop` zero where not visited; and whether each exit was visited (E, B).
        """
        if len(images) == 0:
            return self._empty(target_B)
        if self.rule is not None and self.after_exit == "drop":
            return self._drop(images, target_B, self.rule)
        full = self._compiled_batch in (None, len(images))
        run = self.network if full else self.network.forward
        logits_EBC: Tensor = run(images, self._fork)
        if self.rule is None:
            return logits_EBC, torch.ones_like(logits_EBC[..., 0], dtype=torch.bool)
        return logits_EBC, self.rule.visited(logits_EBC, target_B)

    def _drop(self, images: Tensor, target_B: Tensor, rule: TrainingRule) -> tuple[Tensor, Tensor]:
        batch, last = len(images), self.network.exits - 1
        features: Any = images
        target = target_B
        here: Tensor | None = None  # positions in the batch of the remaining examples; None: all of them
        logits_E, visited_E = [], []
        for k, (stage, head) in enumerate(self.network.pairs()):
            to_head, features = self._fork(k, self._run(stage, features))
            logits = self._run(head, to_head)
            logits_E.append(logits if here is None else _scatter(logits, here, batch))
            visited_E.append(_visited(here, batch, target_B.device))
            if k == last:
                break
            # The number of remaining examples decides the next shapes: the only host synchronisation of this mode.
            stay = (~rule.leaves(logits, target)).nonzero().squeeze(1)
            if len(stay) == len(target):
                continue
            if len(stay) == 0:
                self._fill_unvisited(logits_E, visited_E, after=k)
                break
            features = _rows(features, stay)
            target = target[stay]
            here = stay if here is None else here[stay]
        return torch.stack(logits_E), torch.stack(visited_E)

    def _run(self, module: nn.Module, features: Any) -> Any:
        tensors: tuple[Tensor, ...] = features if isinstance(features, tuple) else (features,)
        examples = len(tensors[0])
        if examples == self._compiled_batch:
            return self._run_full(module, features)
        if self._compiled_batch is None or examples < MIN_COMPILED_BATCH:
            return module(features)
        for tensor in tensors:
            torch._dynamo.mark_dynamic(tensor, 0)
        return self._run_part(module, features)

    def _empty(self, target_B: Tensor) -> tuple[Tensor, Tensor]:
        """The result for an empty batch: no layer runs, and every parameter gets a gradient of zero."""
        zero = _zero([self.network])
        logits_EBC = zero.new_zeros(self.network.exits, 0, self.network.classes) + zero
        return logits_EBC, target_B.new_zeros(self.network.exits, 0, dtype=torch.bool)

    def _fill_unvisited(self, logits_E: list[Tensor], visited_E: list[Tensor], *, after: int) -> None:
        """Append zero logits for the exits that no example reaches.

        Their parameters get a gradient of zero, as with `mask`. Without a gradient the optimizer would skip them, and
        DDP would wait for them forever.
        """
        zero = _zero([*self.network.stages[after + 1 :], *self.network.heads[after + 1 :]]).to(logits_E[0].dtype)
        for _ in range(after + 1, self.network.exits):
            logits_E.append(torch.zeros_like(logits_E[0]) + zero)
            visited_E.append(torch.zeros_like(visited_E[0]))


# Two equal functions: torch stores compiled graphs per function, so full and partial batches do not share graphs.
def _full_batch(module: nn.Module, features: Any) -> Any:
    return module(features)


def _part_of_batch(module: nn.Module, features: Any) -> Any:
    return module(features)


def _zero(modules: list[nn.Module]) -> Tensor:
    """A scalar 0 whose backward pass gives every parameter a gradient of zero."""
    parameters = [p for module in modules for p in module.parameters()]
    return sum((p.flatten()[:1].sum() * 0 for p in parameters), start=parameters[0].new_zeros(()))


def _rows(features: Any, index: Tensor) -> Any:
    """Select examples of a feature map, or of a tuple of feature maps; the memory layout is preserved."""
    if isinstance(features, tuple):
        return tuple(_rows(tensor, index) for tensor in features)
    if features.dim() == 4 and features.is_contiguous(memory_format=torch.channels_last):
        # Selecting from the (batch, height, width, channel) view copies whole rows and keeps the layout.
        return features.permute(0, 2, 3, 1).index_select(0, index).permute(0, 3, 1, 2)
    return features.index_select(0, index)


def _scatter(logits: Tensor, here: Tensor, batch: int) -> Tensor:
    """Put the logits of the remaining examples at their positions in the batch; zeros elsewhere."""
    return logits.new_zeros(batch, logits.shape[1]).index_copy(0, here, logits)


def _visited(here: Tensor | None, batch: int, device: torch.device) -> Tensor:
    """Whether each example of the batch is among the remaining ones, shape (B,)."""
    if here is None:
        return torch.ones(batch, dtype=torch.bool, device=device)
    return torch.zeros(batch, dtype=torch.bool, device=device).index_fill(0, here, True)


TrainingForward = ExitingForward | ManifoldForward | BilateralForward
"""Called with images, leading labels (B,) and the extra arguments of the mixing; returns logits (E, B, C) and visited
(E, B)."""


def forward_and_mixing(
    recipe: Recipe, network: StagedNetwork, rule: TrainingRule | None, labels_N: Ints
) -> tuple[TrainingForward, Mixing | None]:
    """Build the forward pass and the mixing of a recipe, None without one.

    The mixing supplies extra arguments of the forward pass.
    """
    if recipe.model.branches == 2:
        return BilateralForward(network), CumulativeSchedule(recipe.train.epochs)
    if recipe.train.mix == "manifold":
        forward = ManifoldForward(network)
        return forward, ManifoldMixup(_mix_schedule(recipe.train), forward.depths)
    equilibrium = recipe.criterion.equilibrium
    exiting = ExitingForward(network, rule, after_exit=recipe.exits.after_exit, equilibrium=equilibrium)
    return exiting, _mixing_of_images(recipe.train, labels_N)


def _mixing_of_images(train: TrainRecipe, labels_N: Ints) -> Mixing | None:
    if train.mix == "none":
        return None
    schedule = _mix_schedule(train)
    if train.mix == "cmo":
        return MinorityCutMix(schedule, labels_N)
    return CutMix(schedule) if train.mix == "cutmix" else Mixup(schedule)


def _mix_schedule(train: TrainRecipe) -> MixSchedule:
    return MixSchedule(
        seed=train.seed,
        alpha=train.mix_alpha,
        epochs=train.epochs,
        off_epochs=train.mix_off_epochs,
        probability=train.mix_probability,
    )


class _ScaleGradient(torch.autograd.Function):
    """The identity, whose gradient is multiplied by a factor."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return features.view_as(features)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * ctx.factor, None


def scale_gradient(features: Any, factor: float) -> Any:
    """Return the features (a tensor or a tuple of tensors) unchanged, and multiply their gradient by `factor`."""
    if factor == 1.0:
        return features
    if isinstance(features, tuple):
        return tuple(scale_gradient(tensor, factor) for tensor in features)
    return _ScaleGradient.apply(features, factor)  # type: ignore[no-untyped-call]


class GradientEquilibrium:
    """Gradient equilibrium (Li et al. 2019): scales gradients behind every stage; the forward pass is unchanged.

    The loss of a network with K exits is a sum of K losses. Layers near the input get the gradients of all of them, so
    their updates grow with the number of exits, and the early exits pull them away from what the last exit needs.
    Behind stage k of K the gradient from the head is therefore multiplied by 1 / (K - k + 1), and the gradient from the
    later stages by (K - k) / (K - k + 1). All exits behind a stage then weigh the same in it, and their weights add up
    to 1. Heads get their full gradient.

    Experts fork once: n of them read the features of the last shared stage side by side. Behind it, its head and every
    expert get the same factor, 1 / (n + 1), and the experts themselves get their full gradient.

    Args:
        exits: number of exits of the network.
        experts: how many of them are experts.

    Example:
        >>> GradientEquilibrium(3).factors
        ((0.3333333333333333, 0.6666666666666666), (0.5, 0.5), (1.0, 1.0))
    """

    def __init__(self, exits: int, experts: int = 1) -> None:
        self.factors: Sequence[tuple[float, float]] = tuple(_factors(exits - k, experts=experts) for k in range(exits))

    def __call__(self, k: int, features: Any) -> tuple[Any, Any]:
        """Features of stage k (from 0) as its head reads them, and as the next stage reads them."""
        of_head, of_rest = self.factors[k]
        return scale_gradient(features, of_head), scale_gradient(features, of_rest)


def _factors(remaining: int, *, experts: int) -> tuple[float, float]:
    """Gradient factors of the head and of the later stages, for a stage with `remaining` exits, its own included."""
    if remaining <= experts:
        return 1.0, 1.0
    follows = remaining - 1
    # The gradient from behind the last shared stage is the sum over experts, each of which is one exit.
    return 1 / remaining, (1 if follows == experts else follows) / remaining
