"""How quickly a controller acts, and how sure it wants to be."""

import math
from dataclasses import dataclass

from elfnet.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class ControlSettings:
    """Settings that every controller shares.

    Attributes:
        window: examples (or requests, for latency) between two decisions.
        dead_band: how far above the target, relative to it, is still taken for the target.
        far_off: from this relative distance on, several rungs are taken in one move.
        false_alarm: probability that a stream whose mix never changes is ever taken for a changed one.
    """

    window: int = 256
    dead_band: float = 0.03
    far_off: float = 0.2
    false_alarm: float = 0.01

    def __post_init__(self) -> None:
        if self.window < 2:
            raise RequestError(f"window={self.window} is too short to tell noise from drift; give 2 or more, say 256")
        if not (math.isfinite(self.dead_band) and self.dead_band >= 0.0):
            raise RequestError(f"dead_band={self.dead_band} must be 0 or more, such as 0.03")
        if not self.far_off >= self.dead_band:
            raise RequestError(
                f"far_off={self.far_off} lies within dead_band={self.dead_band}; give a larger far_off, such as 0.2"
            )
        if not 0.0 < self.false_alarm < 1.0:
            raise RequestError(f"false_alarm={self.false_alarm} must be a probability above 0 and below 1")
