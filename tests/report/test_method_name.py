"""Methods under the names of the literature."""

import pytest

from elfnet.recipe.load import load_recipe
from elfnet.report.record import method_name


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("ce", "CE"),
        ("focal-drw", "Focal+DRW"),
        ("ldam", "LDAM"),
        ("elf-ce-drw", "ELF(CE)+DRW"),
        ("elf-ldam", "ELF(LDAM)"),
        ("joint-ce-drw", "Joint(CE)+DRW"),
        ("elf-balanced-softmax-mixup", "ELF(BalancedSoftmax)+Mixup"),
        ("logit-adjusted", "LogitAdjusted"),
        ("manifold-mixup", "CE+ManifoldMixup"),
        ("bbn", "BBN(CE)"),
        ("branchynet", "BranchyNet(CE)+DRW"),
        ("distilled-exits", "Distilled(CE)+DRW"),
    ],
)
def test_shipped_methods(method: str, name: str) -> None:
    assert method_name(load_recipe(f"digits/{method}")) == name


def test_weights_from_the_start_are_not_deferred() -> None:
    assert method_name(load_recipe("digits/ce", {"criterion.reweight": "inverse"})) == "CE+RW(inverse)"
