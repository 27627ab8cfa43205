"""What the calibration split gives away: untuned results, and the number of labels that a choice used."""

from pathlib import Path

import numpy as np
import pytest
import torch

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.evaluate.exit_table import ExitTable
from elfnet.methods.refit.post_hoc import at_untuned_tau
from elfnet.reproduce.run import Outcome
from elfnet.reproduce.untuned import labels_used, stored_untuned, untuned_point
from elfnet.run.checkpoint import load_checkpoint
from elfnet.run.directory import RunDirectory
from elfnet.run.json_file import read_json

COLUMN = "cifar10-lt-100"


def _run(out: Path, row: str) -> tuple[RunDirectory, dict]:  # type: ignore[type-arg]
    return RunDirectory(out / COLUMN / row / "seed0"), read_json(out / "records" / COLUMN / row / "seed0.json")


def test_tau_norm_at_tau_one(filled: tuple[Path, Outcome]) -> None:
    """It equals the source run's features through weights of length one, without bias."""
    run, record = _run(filled[0], "tau-norm")
    source, _ = _run(filled[0], "ce")
    table, weights = ExitTable.open(source.table("test")), load_checkpoint(source.checkpoint("last")).weights
    bias_C, norm_C = weights["heads.0.classifier.bias"], weights["heads.0.classifier.weight"].norm(dim=1)
    logits_NC = (torch.from_numpy(np.array(table.logits_NEC[:, 0])) - bias_C) / norm_C
    expected = float((logits_NC.argmax(dim=1).numpy() == table.labels_N).mean())
    assert record["untuned"]["setting"] == "τ = 1"
    assert record["untuned"]["accuracy"] == pytest.approx(expected)
    assert untuned_point(run) == record["untuned"]
    assert (labels_used(record, "full"), labels_used(record, "untuned")) == (record["data"]["calibration"], 0)


def test_logit_adjustment_at_tau_one() -> None:
    generator = torch.Generator().manual_seed(0)
    plain_NC = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    log_prior_C = torch.tensor([0.7, 0.2, 0.1]).double().log()
    found_NC = at_untuned_tau(
        "logit-adjustment",
        plain_NC - 1.7 * log_prior_C,
        tau=1.7,
        weight_CF=torch.ones(3, 2),
        log_prior_C=log_prior_C,
    )
    torch.testing.assert_close(found_NC, plain_NC - log_prior_C)


def test_exits_at_a_fixed_threshold(filled: tuple[Path, Outcome]) -> None:
    _, record = _run(filled[0], "elf-ce-drw")
    assert record["untuned"]["setting"] == "s = 0.95"
    assert record["untuned"]["accuracy"] == record["points"]["s=0.95"]["accuracy"]
    assert record["untuned"]["mean_cost"] == pytest.approx(record["points"]["s=0.95"]["mean_cost"])
    assert set(record["untuned"]["accuracy_by_group"]) == set(GROUP_NAMES)
    held_out = record["data"]["calibration"]
    assert [labels_used(record, name) for name in ("full", "accurate", "untuned")] == [0, held_out, 0]
    # Records of earlier versions have the same point under its own name.
    older = {name: value for name, value in record.items() if name != "untuned"}
    assert stored_untuned(older) == record["untuned"]


def test_a_row_without_choices(filled: tuple[Path, Outcome]) -> None:
    _, record = _run(filled[0], "ce")
    assert record["untuned"] is None
    assert labels_used(record, "full") == 0
