"""scikit-learn's interface to training and inference: `ELFClassifier`.

It trains with `elfnet.train` and runs with `elfnet.inference`; it has no training loop of its own.
"""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.estimator.classifier import ELFClassifier

__all__ = ["ELFClassifier"]

__getattr__ = lazy_names(__name__, {"ELFClassifier": "elfnet.estimator.classifier"})


def __dir__() -> list[str]:
    return __all__
