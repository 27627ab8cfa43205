"""The published equations of each method, written out loop by loop in float64. Nothing here is imported from elfnet.

Each function follows the paper named in its docstring. Loops go over scalars, and autograd gives the derivatives, so
that values, gradients and whole training steps of the package can be compared with them.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

Base = Callable[[Tensor, int], Tensor]
"""The loss of one example: logits (C,) and label to a scalar."""


def softmax(logits_C: Tensor) -> list[Tensor]:
    largest = max(float(one) for one in logits_C.detach())
    powers = [torch.exp(one - largest) for one in logits_C]
    total = torch.stack(powers).sum()
    return [one / total for one in powers]


def cross_entropy(logits_C: Tensor, y: int) -> Tensor:
    return -torch.log(softmax(logits_C)[y])


def focal(logits_C: Tensor, y: int, gamma: float) -> Tensor:
    """Lin et al. 2017, eq. 4: -(1 - p_t)^gamma log p_t."""
    p = softmax(logits_C)[y]
    return -((1 - p) ** gamma) * torch.log(p)


def focal_of_ldam_code(logits_C: Tensor, y: int, gamma: float, weight: float) -> Tensor:
    """The focal loss of the reference code of Cao et al.: x = w CE, p = exp(-x), (1 - p)^gamma x."""
    x = weight * cross_entropy(logits_C, y)
    return (1 - torch.exp(-x)) ** gamma * x


def ldam_margins(counts: Sequence[int], largest: float = 0.5) -> list[float]:
    """Cao et al. 2019, eq. 13: proportional to n^(-1/4), the largest being 0.5."""
    raw = [n**-0.25 for n in counts]
    return [largest * one / max(raw) for one in raw]


def ldam(cosines_C: Tensor, y: int, counts: Sequence[int], scale: float = 30.0) -> Tensor:
    """Cao et al. 2019, eq. 13: cross-entropy of the scaled cosines, the label's lowered by its margin."""
    margin = ldam_margins(counts)[y]
    lowered = [scale * (one - margin if j == y else one) for j, one in enumerate(cosines_C)]
    return cross_entropy(torch.stack(lowered), y)


def balanced_softmax(logits_C: Tensor, y: int, counts: Sequence[int]) -> Tensor:
    """Ren et al. 2020, eq. 4: -log(n_y e^z_y / sum_j n_j e^z_j)."""
    parts = [n * torch.exp(one) for n, one in zip(counts, logits_C, strict=True)]
    return -torch.log(parts[y] / torch.stack(parts).sum())


def logit_adjusted(logits_C: Tensor, y: int, counts: Sequence[int], tau: float) -> Tensor:
    """Menon et al. 2021, eq. 10: log(1 + sum_(j != y) (pi_j / pi_y)^tau e^(z_j - z_y))."""
    others = [
        (n / counts[y]) ** tau * torch.exp(one - logits_C[y])
        for j, (n, one) in enumerate(zip(counts, logits_C, strict=True))
        if j != y
    ]
    return torch.log(1 + torch.stack(others).sum())


def effective_weights(counts: Sequence[int], beta: float = 0.9999) -> list[float]:
    """Cui et al. 2019, eq. 4: (1 - beta) / (1 - beta^n), scaled to sum to the number of classes."""
    raw = [(1 - beta) / (1 - beta**n) for n in counts]
    return [one * len(counts) / sum(raw) for one in raw]


def exit_in_training(logits_EC: Tensor, y: int, t: float, scale: float = 1.0) -> int:
    """Duggal et al. 2020, eq. 1: the first exit that predicts y with a probability above t, else the last."""
    for k, logits_C in enumerate(logits_EC):
        p = [float(one) for one in softmax(scale * logits_C.detach())]
        if p.index(max(p)) == y and p[y] > t:
            return k
    return len(logits_EC) - 1


def exit_at_inference(logits_EC: Tensor, s: float) -> tuple[int, int]:
    """Duggal et al. 2020, eq. 5 and 6: the first exit whose largest probability is above s, and its answer."""
    for k, logits_C in enumerate(logits_EC):
        p = [float(one) for one in softmax(logits_C)]
        if max(p) > s or k == len(logits_EC) - 1:
            return k, p.index(max(p))
    raise AssertionError("a network has exits")


def elf_step_loss(
    logits_EBC: Tensor, labels: Sequence[int], base: Base, weights: Sequence[float], t: float, scale: float = 1.0
) -> Tensor:
    """Duggal et al. 2020, eq. 2 to 4: losses of the exits visited, weighted by class, over the weights of the batch."""
    total, divisor = torch.zeros((), dtype=torch.float64), 0.0
    for b, y in enumerate(labels):
        last = exit_in_training(logits_EBC[:, b], y, t, scale)
        for k in range(last + 1):
            total = total + weights[y] * base(logits_EBC[k, b], y)
        divisor += weights[y]
    return total / divisor


def bbn_share(epoch: int, epochs: int) -> float:
    """Zhou et al. 2020, eq. 4, with epochs counted from 0: 1 - (T / T_max)^2."""
    return 1 - (epoch / epochs) ** 2


def bbn_logits(
    shared: nn.Module, frequent: nn.Module, rare: nn.Module, weight_CF: Tensor, bias_C: Tensor, images: Tensor, a: float
) -> Tensor:
    """Zhou et al. 2020, eq. 1 and the factor 2 of their code: one classifier reads [2 a f_c, 2 (1 - a) f_r].

    Args:
        images: the batch of the uniform sampler, followed by that of the reversed one, each passed on its own.
    """
    half = len(images) // 2
    first = frequent(shared(images[:half])).mean(dim=(2, 3))
    second = rare(shared(images[half:])).mean(dim=(2, 3))
    rows = []
    for f, g in zip(first, second, strict=True):
        mixed = [2 * a * one for one in f] + [2 * (1 - a) * one for one in g]
        rows.append(torch.stack([sum(w * x for w, x in zip(w_F, mixed, strict=True)) for w_F in weight_CF]) + bias_C)
    return torch.stack(rows)


def bbn_loss(logits_BC: Tensor, first: Sequence[int], second: Sequence[int], a: float) -> Tensor:
    """Zhou et al. 2020, eq. 3: a E(p, y_c) + (1 - a) E(p, y_r), the mean over the batch."""
    losses = [
        a * cross_entropy(logits_C, y) + (1 - a) * cross_entropy(logits_C, z)
        for logits_C, y, z in zip(logits_BC, first, second, strict=True)
    ]
    return torch.stack(losses).sum() / len(losses)


def cosine_rate(lr: float, epoch: int, epochs: int) -> float:
    """Loshchilov and Hutter 2017, eq. 5, once per epoch and down to 0, as in the code of Kang et al. 2020."""
    return lr * (1 + math.cos(math.pi * epoch / epochs)) / 2


@torch.no_grad()
def first_sgd_step(module: nn.Module, *, lr: float, weight_decay: float) -> None:
    """The first step of SGD with momentum, whose buffer is then the gradient: p - lr (g + weight_decay p)."""
    for parameter in module.parameters():
        if parameter.grad is not None:
            parameter.copy_(parameter - lr * (parameter.grad + weight_decay * parameter))
