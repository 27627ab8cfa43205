"""imbalanced-learn, imported when it is needed, kept quiet and to one thread."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from elfnet.data.examples import Ints
from elfnet.errors import RequestError
from elfnet.methods.refit.resample.resampled import Floats


def require_imbalanced_learn() -> None:
    """Refuse where it is not installed."""
    try:
        with _quiet():
            import_module("imblearn")
    except ImportError:
        raise RequestError(
            "re-sampling features needs imbalanced-learn; install elfnet[resample]: pip install 'elfnet[resample]'"
        ) from None


def sampler_class(module: str, name: str) -> Any:
    """A class of imbalanced-learn."""
    require_imbalanced_learn()
    with _quiet():
        return getattr(import_module(f"imblearn.{module}"), name)


def run_sampler(sampler: Any, features_NF: Floats, labels_N: Ints) -> tuple[Floats, Ints]:
    """Features and labels that a sampler makes of these."""
    limits = import_module("threadpoolctl").threadpool_limits
    # Several threads add up cluster centres in the order in which they come, which is another one each time.
    with _quiet(), limits(limits=1, user_api="openmp"):
        features_MF, labels_M = sampler.fit_resample(features_NF, labels_N)
    return np.asarray(features_MF, dtype=np.float64), np.asarray(labels_M, dtype=np.int64)


def seed_of_class(seed: int, label: int) -> int:
    """Classes are sampled one by one, and draw different numbers."""
    return int(np.random.SeedSequence([seed, label]).generate_state(1)[0])


@contextmanager
def _quiet() -> Iterator[None]:
    """About versions, duplicates among few examples and the like: none of it is the user's to act on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
