"""The forward pass in which examples leave.

`mask` runs everything and marks what was visited; `drop` keeps only the examples that stay, so that later stages
really do not run on those that left. Both give the criterion the same thing. They differ where batch norm does: in
`drop`, later layers see and learn statistics of the examples that stay.
"""

# Shapes: E exits, B batch, C classes

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from elfnet.data.types import Ints
from elfnet.exits.training_rule import TrainingRule
from elfnet.methods.bbn import BilateralForward, CumulativeSchedule
from elfnet.methods.cutmix import CutMix, MinorityCutMix
from elfnet.methods.mixup import ManifoldForward, ManifoldMixup, Mixing, MixSchedule, Mixup, unmixed
from elfnet.models.staged import StagedNetwork, reset_compiler, same_features
from elfnet.recipe.schema import Recipe, TrainRecipe
from elfnet.train.gradient_equilibrium import GradientEquilibrium

# Below this many examples a compiled stage is not used: torch.compile makes a graph of its own for a batch of one,
# and small batches are rare.
SMALLEST_COMPILED_BATCH = 2

Run = Callable[[nn.Module, Any], Any]


class ExitingForward(nn.Module):
    """Logits of every exit and who visited it.

    Args:
        network: stages and heads.
        rule: when examples leave; None: nobody leaves before the last exit (joint training, or a plain network).
        after_exit: what happens to an example after its exit: its loss is masked, or it is dropped.
        equilibrium: scale the gradients that exits send into the stages, so that together they weigh as one.
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
        """Compile in place, with graphs that do not depend on what happened before.

        A resumed run then uses the same graphs: in `mask` one static graph for full batches (a smaller last batch runs
        uncompiled), in `drop` two graphs per stage and head, a static one for full batches and one for all smaller
        ones. With progressive resizing there is one of each per image size.

        Args:
            batch_size: of a full batch of this process.
            image_sizes: how many sizes of images there will be.
        """
        reset_compiler(graphs=4 * self.network.exits * image_sizes)
        self._compiled_batch = batch_size
        if self.after_exit == "mask" or self.rule is None:
            self.network.compile(dynamic=False)
        else:
            self._run_full = torch.compile(_full_batch, dynamic=False)
            self._run_part = torch.compile(_part_of_batch)

    def forward(self, images: Tensor, target_B: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (E, B, C), zero where not visited in `drop`; and visited (E, B). A batch may be empty: of several
        processes one may get nothing of the last batch.
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
        here: Tensor | None = None  # positions in the batch of the examples still here; None: all of them
        logits_E, visited_E = [], []
        for k, (stage, head) in enumerate(self.network.pairs()):
            to_head, features = self._fork(k, self._run(stage, features))
            logits = self._run(head, to_head)
            logits_E.append(logits if here is None else _spread(logits, here, batch))
            visited_E.append(_mark(here, batch, target_B.device))
            if k == last:
                break
            # The number that stay decides the shapes that follow: the one host synchronisation this mode needs.
            stay = (~rule.leaves(logits, target)).nonzero().squeeze(1)
            if len(stay) == len(target):
                continue
            if len(stay) == 0:
                self._nobody_stays(logits_E, visited_E, after=k)
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
        if self._compiled_batch is None or examples < SMALLEST_COMPILED_BATCH:
            return module(features)
        for tensor in tensors:
            torch._dynamo.mark_dynamic(tensor, 0)
        return self._run_part(module, features)

    def _empty(self, target_B: Tensor) -> tuple[Tensor, Tensor]:
        """Nobody came: no layer runs (batch norm could not), and every parameter gets a gradient of zero."""
        zero = _zero([self.network])
        logits_EBC = zero.new_zeros(self.network.exits, 0, self.network.classes) + zero
        return logits_EBC, target_B.new_zeros(self.network.exits, 0, dtype=torch.bool)

    def _nobody_stays(self, logits_E: list[Tensor], visited_E: list[Tensor], *, after: int) -> None:
        """Fill in the exits nobody reached. Their parameters get a gradient of zero, as in `mask`: without one the
        optimiser would skip them, and distributed training would wait for them for ever.
        """
        zero = _zero([*self.network.stages[after + 1 :], *self.network.heads[after + 1 :]]).to(logits_E[0].dtype)
        for _ in range(after + 1, self.network.exits):
            logits_E.append(torch.zeros_like(logits_E[0]) + zero)
            visited_E.append(torch.zeros_like(visited_E[0]))


# Two functions that do the same: torch keeps compiled graphs by function, so neither is ever run with the other's.
def _full_batch(module: nn.Module, features: Any) -> Any:
    return module(features)


def _part_of_batch(module: nn.Module, features: Any) -> Any:
    return module(features)


def _zero(modules: list[nn.Module]) -> Tensor:
    """Zero, with a gradient of zero for every parameter."""
    parameters = [p for module in modules for p in module.parameters()]
    return sum((p.flatten()[:1].sum() * 0 for p in parameters), start=parameters[0].new_zeros(()))


def _rows(features: Any, index: Tensor) -> Any:
    """Rows of a feature map, in the memory layout it had; of every tensor where a stage passes on several."""
    if isinstance(features, tuple):
        return tuple(_rows(tensor, index) for tensor in features)
    if features.dim() == 4 and features.is_contiguous(memory_format=torch.channels_last):
        # Selecting from the (batch, height, width, channel) view copies whole rows and keeps the layout.
        return features.permute(0, 2, 3, 1).index_select(0, index).permute(0, 3, 1, 2)
    return features.index_select(0, index)


def _spread(logits: Tensor, here: Tensor, batch: int) -> Tensor:
    """Put the logits of those still here at their places in the batch; zeros elsewhere."""
    return logits.new_zeros(batch, logits.shape[1]).index_copy(0, here, logits)


def _mark(here: Tensor | None, batch: int, device: torch.device) -> Tensor:
    if here is None:
        return torch.ones(batch, dtype=torch.bool, device=device)
    return torch.zeros(batch, dtype=torch.bool, device=device).index_fill(0, here, True)


TrainingForward = ExitingForward | ManifoldForward | BilateralForward
"""Called with images, leading labels (B,) and what the mixing adds; gives logits (E, B, C) and visited (E, B)."""


def forward_and_mixing(
    recipe: Recipe, network: StagedNetwork, rule: TrainingRule | None, labels_N: Ints
) -> tuple[TrainingForward, Mixing]:
    """The two belong together: what a mixing draws is what its forward pass takes.

    Args:
        labels_N: of the training split.
    """
    if recipe.model.branches == 2:
        return BilateralForward(network), CumulativeSchedule(recipe.train.epochs)
    if recipe.train.mix == "manifold":
        forward = ManifoldForward(network)
        return forward, ManifoldMixup(_mix_schedule(recipe.train), forward.depths)
    equilibrium = recipe.criterion.equilibrium
    return ExitingForward(network, rule, after_exit=recipe.exits.after_exit, equilibrium=equilibrium), _mixing(
        recipe, labels_N
    )


def _mixing(recipe: Recipe, labels_N: Ints) -> Mixing:
    mix, schedule = recipe.train.mix, _mix_schedule(recipe.train)
    if mix == "cmo":
        return MinorityCutMix(schedule, labels_N)
    if mix == "cutmix":
        return CutMix(schedule)
    return Mixup(schedule) if mix == "mixup" else unmixed


def _mix_schedule(train: TrainRecipe) -> MixSchedule:
    return MixSchedule(
        seed=train.seed,
        alpha=train.mix_alpha,
        epochs=train.epochs,
        off_epochs=train.mix_off_epochs,
        probability=train.mix_probability,
    )
