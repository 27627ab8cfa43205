"""What the engine needs of whatever computes the stages."""

# Shapes: B examples still here, K channels, H height, W width, C classes

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Backend(Protocol):
    """Stages and heads of one network. Features are the backend's own arrays; the engine never looks inside.

    A backend holds no state of a call, so that many threads may use one.
    """

    @property
    def exits(self) -> int: ...

    def start(self, images_BKHW: NDArray[np.float32]) -> Any:
        """Normalised images, as the first stage wants them."""
        ...

    def run(self, k: int, features: Any) -> tuple[Any, NDArray[np.float32]]:
        """Stage k and the head behind it: new features, and logits (B, C)."""
        ...

    def run_without_head(self, k: int, features: Any) -> Any:
        """Stage k alone, where nobody can leave: new features. Never asked of the last stage."""
        ...

    def keep(self, features: Any, stay: NDArray[np.int64]) -> Any:
        """The features of the examples at these positions."""
        ...
