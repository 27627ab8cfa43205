"""The model's own head as the last exit."""

import torch
from torch import Tensor, nn


class OriginalHead(nn.Module):
    """Runs outside autocast, in the precision of its own parameters, and gives logits (B, C) of at least float32.

    So logits, confidence and loss do not depend on the precision chosen for the backbone.
    """

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        self.original = original

    def forward(self, features: Tensor) -> Tensor:
        parameter = next(self.original.parameters(), None)
        # The meta device knows no autocast.
        device = "cpu" if features.is_meta else features.device.type
        with torch.autocast(device_type=device, enabled=False):
            logits_BC: Tensor = self.original(features if parameter is None else features.to(parameter.dtype))
        return logits_BC.float() if logits_BC.dtype in (torch.float16, torch.bfloat16) else logits_BC
