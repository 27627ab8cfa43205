"""Distillation within one network (Phuong & Lampert 2019): early exits learn from the last one's answer."""

# Shapes: E exits, B batch, C classes

import torch
from torch import Tensor
from torch.nn import functional


def distilled(loss_EB: Tensor, logits_EBC: Tensor, *, share: float, temperature: float, scale: float = 1.0) -> Tensor:
    """(1 - share) L + share T^2 KL(last exit || this exit) at every exit but the last, shape (E, B).

    Both answers are softened by the temperature T, whose square keeps the size of the gradient. The last exit is the
    teacher: it takes no gradient from this, and keeps its own loss.

    Args:
        scale: what the base loss multiplies logits with (30 for LDAM).
    """
    log_p_EBC = (logits_EBC.float() * (scale / temperature)).log_softmax(dim=-1)
    teacher_BC = log_p_EBC[-1].detach()
    divergence_EB = functional.kl_div(
        log_p_EBC[:-1], teacher_BC.expand_as(log_p_EBC[:-1]), reduction="none", log_target=True
    ).sum(dim=-1)
    early_EB = (1 - share) * loss_EB[:-1] + share * temperature**2 * divergence_EB
    return torch.cat([early_EB, loss_EB[-1:]])
