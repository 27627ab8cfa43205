"""The ELF loss (eq. 2 to 4): the base loss at the exits that an example visits, and distillation between exits."""

# Shapes: E exits, B batch, C classes

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from elfnet.errors import RequestError
from elfnet.exits.threshold import parse_threshold
from elfnet.exits.training_rule import TrainingRule, exit_taken
from elfnet.losses.base import BaseLoss, Labels
from elfnet.losses.weighting import weighted_batch_mean
from elfnet.models.experts import own_logits

TEMPERATURE_STEP = 1.05
"""The factor that a temperature is multiplied by after each step in which it was too low."""


class Distillation(nn.Module):
    """Self-distillation: adds weight T^2 KL(last exit || this exit) to the loss of every exit except the last.

    Both distributions are softened by the temperature T. The factor T^2 keeps the size of the gradient. The last exit
    is the teacher: it gets no gradient from this term. T rises as the teacher becomes more confident, so that the
    teacher's distribution always holds more than the label.

    Args:
        weight: the weight of the distillation term.
        temperature: the initial temperature.
        confidence: the temperature rises while the mean confidence of the teacher's softened predictions is above this
            value. At 1 the temperature is constant.
    """

    temperature: Tensor
    _teacher_confidence: Tensor

    def __init__(self, weight: float, *, temperature: float = 1.0, confidence: float = 0.5) -> None:
        super().__init__()
        self._weight, self._confidence = weight, confidence
        self.register_buffer("temperature", torch.tensor(temperature), persistent=False)
        # Of the current step: the sum of the teacher's confidences, and the number of examples.
        self.register_buffer("_teacher_confidence", torch.zeros(2), persistent=False)

    def forward(self, loss_EB: Tensor, logits_EBC: Tensor, *, scale: float = 1.0) -> Tensor:
        """Return the loss with the distillation term added, shape (E, B).

        Args:
            scale: the factor that the base loss multiplies logits by (see `BaseLoss`).
        """
        precise_EBC = logits_EBC.to(torch.promote_types(logits_EBC.dtype, torch.float32))
        log_p_EBC = (precise_EBC * (scale / self.temperature)).log_softmax(dim=-1)
        teacher_BC = log_p_EBC[-1].detach()
        divergence_EB = functional.kl_div(
            log_p_EBC[:-1], teacher_BC.expand_as(log_p_EBC[:-1]), reduction="none", log_target=True
        ).sum(dim=-1)
        confidence_B = teacher_BC.amax(dim=-1).exp()
        self._teacher_confidence += torch.stack([confidence_B.sum(), torch.ones_like(confidence_B).sum()])
        early_EB = loss_EB[:-1] + self._weight * self.temperature**2 * divergence_EB
        return torch.cat([early_EB, loss_EB[-1:]])

    def end_step(self, all_reduce: Callable[[Tensor], Tensor]) -> None:
        """Raise the temperature if the teacher was too confident on the batch of this step.

        Args:
            all_reduce: sums a tensor over all processes, so that all have the same temperature.
        """
        if self._confidence < 1:
            confidence, number = all_reduce(self._teacher_confidence)
            self.temperature *= torch.where(confidence > self._confidence * number, TEMPERATURE_STEP, 1.0)
        self._teacher_confidence.zero_()


class ELFLoss(nn.Module):
    """The ELF loss: the base loss at every exit that an example visits.

    An example visits exits up to the first that predicts its label with a confidence above the threshold (eq. 1). With
    one exit this is the base loss. If every exit is visited it is ordinary joint training.

    Args:
        base: the base loss, computed per example and exit.
        threshold: t of eq. 1, as a probability or as a multiple of 1/C such as `2/C`; None: all examples visit all
            exits.
        exits: the number of exits of the network, to check logits; None: any number.
        confidence_scale: the factor that logits are multiplied by before eq. 1, see `TrainingRule`.
        experts: how many of these exits are experts. Their losses use their own logits, not the mean over experts.
        exit_weights: the factor for the loss of each exit (BranchyNet); empty for 1 everywhere.
        distillation: lets early exits learn from the last one; None for no distillation. Call `end_step` after every
            step then.

    Raises:
        RequestError: the base is no `BaseLoss`, the number of exit weights is not the number of exits, or the
            threshold is not valid.

    Example:
        >>> from elfnet.losses import CrossEntropyLoss
        >>> logits_EBC = torch.tensor([[[9.0, 0.0], [0.0, 0.0]], [[9.0, 0.0], [0.0, 9.0]]])
        >>> loss, exit_B = ELFLoss(CrossEntropyLoss(), threshold=0.9)(logits_EBC, torch.tensor([0, 1]))
        >>> exit_B.tolist()
        [0, 1]
    """

    weight_E1: Tensor | None

    def __init__(
        self,
        base: BaseLoss,
        threshold: float | str | None = 0.9,
        *,
        exits: int | None = None,
        confidence_scale: float = 1.0,
        experts: int = 1,
        exit_weights: Sequence[float] = (),
        distillation: Distillation | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(base, BaseLoss):
            raise RequestError(
                f"base is {type(base).__module__}.{type(base).__qualname__}; give a loss of elfnet.losses, such as "
                "CrossEntropyLoss, which returns one value per example"
            )
        if exit_weights and exits is not None and len(exit_weights) != exits:
            raise RequestError(
                f"criterion.exit_weights has {len(exit_weights)} numbers for {exits} exits; give one per exit"
            )
        self.base = base
        self.exits = exits or len(exit_weights) or None
        self.rule = None
        if threshold is not None:
            number = _parse_threshold(threshold, base.classes)
            self.rule = TrainingRule(threshold=number, confidence_scale=confidence_scale)
        self._experts = experts
        weight_E1 = torch.tensor([*exit_weights])[:, None] if exit_weights else None
        self.register_buffer("weight_E1", weight_E1, persistent=False)
        self.distillation = distillation

    def forward(
        self,
        logits: Tensor | Sequence[Tensor],
        labels: Tensor | Labels,
        *,
        visited_EB: Tensor | None = None,
        weights_C: Tensor | None = None,
        divisor: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of a batch, a scalar, and the exit where each example stops, shape (B,).

        The loss is the weighted mean over the batch, see `weighted_batch_mean`.

        Args:
            logits: the logits of all exits, shape (E, B, C), or a list of E tensors of shape (B, C).
            labels: the class of each example, shape (B,), or `Labels` with two classes per example.
            visited_EB: which exits each example visits; None: by eq. 1.
            weights_C: class weights; None for 1.
            divisor: replaces the sum of the weights of the local batch, such as by their sum over all processes. (DDP
                averages gradients, so the loss of each process has to be multiplied by the number of processes then.)

        Raises:
            RequestError: the logits do not have the number of exits or classes that the loss was built for, or there is
                not one label per example.
        """
        logits_EBC = self._stacked(logits)
        labels = labels if isinstance(labels, Labels) else Labels(labels)
        if labels.first_B.shape != logits_EBC.shape[1:2]:
            raise RequestError(
                f"the logits are of {logits_EBC.shape[1]} examples, and the labels have shape "
                f"{tuple(labels.first_B.shape)}; give one class index per example"
            )
        if visited_EB is None:
            visited_EB = self.visited(logits_EBC, labels.leading)
        weights_C = _ones(logits_EBC) if weights_C is None else weights_C
        loss_B = self.at_exits(logits_EBC, labels, visited_EB, weights_C).sum(dim=0)
        weight_B = labels.weight(self.base, weights_C)
        return weighted_batch_mean(loss_B, weight_B, divisor), exit_taken(visited_EB)

    def visited(self, logits_EBC: Tensor, target_B: Tensor) -> Tensor:
        """Which exits each example visits by eq. 1, shape (E, B)."""
        if self.rule is None:
            return torch.ones_like(logits_EBC[..., 0], dtype=torch.bool)
        return self.rule.visited(logits_EBC, target_B)

    def at_exits(
        self, logits_EBC: Tensor, labels: Tensor | Labels, visited_EB: Tensor, weights_C: Tensor | None = None
    ) -> Tensor:
        """The loss of each example at each exit, zero at exits that it does not visit; shape (E, B).

        Class weights are applied by the reduction, see `weighted_batch_mean`. Here they only matter for examples with
        two labels, and for a base loss with `weights_inside`.

        Args:
            logits_EBC: the logits of all exits, as the network returns them.
        """
        labels = labels if isinstance(labels, Labels) else Labels(labels)
        logits_EBC = self._stacked(logits_EBC)
        if self._experts > 1:
            logits_EBC = own_logits(logits_EBC, self._experts)
        weights_C = _ones(logits_EBC) if weights_C is None else weights_C
        if len(weights_C) != logits_EBC.shape[-1]:
            raise RequestError(f"{len(weights_C)} class weights for {logits_EBC.shape[-1]} classes; give one per class")
        loss_EB = labels.loss(self.base, logits_EBC, weights_C)
        if self.distillation is not None:
            loss_EB = self.distillation(loss_EB, logits_EBC, scale=self.base.scale)
        if self.weight_E1 is not None:
            loss_EB = loss_EB * self.weight_E1
        return torch.where(visited_EB, loss_EB, 0.0)

    def end_step(self, all_reduce: Callable[[Tensor], Tensor] = lambda tensor: tensor) -> None:
        """Finish a training step. Call this once per step, after all parts of the batch.

        Args:
            all_reduce: sums a tensor over all processes.
        """
        if self.distillation is not None:
            self.distillation.end_step(all_reduce)

    def _stacked(self, logits: Tensor | Sequence[Tensor]) -> Tensor:
        if isinstance(logits, Tensor) and logits.dim() != 3:
            raise RequestError(
                f"the logits have shape {tuple(logits.shape)}; give those of all exits, shape (exits, batch, classes), "
                "or a list with one tensor per exit"
            )
        if self.exits is not None and len(logits) != self.exits:
            raise RequestError(
                f"the logits have {len(logits)} exits, and the loss was built for {self.exits}; give the logits of all "
                "exits, shape (exits, batch, classes)"
            )
        if isinstance(logits, Tensor):
            return logits
        shapes = [tuple(one.shape) for one in logits]
        if len(set(shapes)) != 1 or len(shapes[0]) != 2:
            raise RequestError(
                f"the logits of the exits have shapes {shapes}; give one tensor per exit, all of shape (batch, classes)"
            )
        return torch.stack([*logits])


def _parse_threshold(threshold: float | str, classes: int | None) -> float:
    if isinstance(threshold, str) and classes is None:
        raise RequestError(
            f"threshold {threshold!r}: this base loss does not know the number of classes; give it as a number"
        )
    return parse_threshold(threshold, classes=classes or 1)


def _ones(logits_EBC: Tensor) -> Tensor:
    return logits_EBC.new_ones(logits_EBC.shape[-1])
