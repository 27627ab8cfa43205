"""The registry of sources, and a contract that every source which needs no file must keep."""

import subprocess
import sys

import numpy as np
import pytest

from elfnet.data.build import load_source
from elfnet.data.splits import make_splits
from elfnet.data.types import SOURCES
from elfnet.errors import RequestError

OFFLINE = ["digits"]


def test_the_sources_are_these() -> None:
    assert SOURCES.names() == ["arrays", "cifar10", "cifar100", "digits", "features", "folder", "hub", "lists"]


def test_an_unknown_source_lists_the_choices() -> None:
    with pytest.raises(RequestError, match="unknown data source 'cifar-10'; did you mean 'cifar10'"):
        load_source("cifar-10")


@pytest.mark.parametrize("name", OFFLINE)
def test_contract(name: str) -> None:
    source, again = load_source(name), load_source(name)
    assert source.name == name
    assert np.array_equal(source.train.images_NHWC, again.train.images_NHWC)
    assert np.array_equal(source.train.labels_N, again.train.labels_N)
    assert source.train.images_NHWC.flags.c_contiguous
    counts = source.train.class_counts(len(source.class_names))
    assert (counts > 0).all()
    assert len(set(source.class_names)) == len(source.class_names)
    splits = make_splits(source, ratio=10)
    assert (splits.class_counts_C > 0).all()
    assert (splits.test_counts_C > 0).all()


def test_the_package_imports_neither_torch_nor_scikit_learn() -> None:
    script = (
        "import sys, elfnet.data.build, elfnet.data.splits, elfnet.data.describe, elfnet.data.long_tail; "
        "sys.exit(bool({'torch', 'sklearn', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
