"""Whether logits are adjusted, and by how much: the truth is found, noise is not taken for it."""

# Shapes: N examples, E exits, C classes

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from elfnet.calibrate.adjustment_choice import choose_adjustment
from elfnet.calibrate.calibration_table import stratified_part
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.metrics import balanced_accuracy

TableFactory = Callable[..., ExitTable]
Floats = NDArray[np.float64]
TAUS = tuple(tau / 10 for tau in range(21))
LEANING = (1.5, 1.0, 0.5, 0.0)
"""How much of the log prior each exit of a biased model has in its logits."""


@pytest.fixture
def log_prior(make_table: TableFactory) -> Floats:
    counts_C = make_table().class_counts_C
    log_prior_C: Floats = np.log(counts_C / counts_C.sum())
    return log_prior_C


@pytest.fixture
def biased(make_table: TableFactory, log_prior: Floats) -> ExitTable:
    """A model that favours frequent classes, early exits more than late ones."""
    table = make_table(examples=3000)
    leaning_EC = np.outer(LEANING, log_prior).astype(np.float32)
    return replace(table, logits_NEC=table.logits_NEC + leaning_EC)


def scores(table: ExitTable, taus: tuple[float, ...], log_prior: Floats) -> list[float]:
    """Balanced accuracy of each exit, by a loop."""
    return [
        balanced_accuracy((table.logits_NEC[:, k] - tau * log_prior).argmax(axis=1), table.labels_N)
        for k, tau in enumerate(taus)
    ]


def test_every_exit_gets_the_tau_that_is_best_for_it(biased: ExitTable, log_prior: Floats) -> None:
    choice = choose_adjustment(biased, adjust="auto", taus=TAUS)
    assert choice.adjustment is not None
    assert choice.adjustment.taus == pytest.approx(LEANING, abs=0.31)
    assert choice.adjustment.log_prior == pytest.approx(log_prior.tolist())
    chosen = scores(biased, choice.adjustment.taus, log_prior)
    for tau in TAUS:
        assert all(best >= one - 1e-12 for best, one in zip(chosen, scores(biased, (tau,) * 4, log_prior), strict=True))
    assert "adjusted, tau by exit" in choice.why
    assert "standard error" in choice.why


def test_a_model_without_a_bias_keeps_its_logits(make_table: TableFactory) -> None:
    """The taus that fit the noise of a split do not win: the comparison is on examples that they were not fitted on."""
    for seed in range(10):
        choice = choose_adjustment(make_table(seed=seed), adjust="auto", taus=TAUS)
        assert choice.adjustment is None
        assert choice.why.startswith("plain logits (cross-validated balanced accuracy")


def test_below_two_standard_errors_the_plain_logits_stay(make_table: TableFactory, log_prior: Floats) -> None:
    """A gain that may be chance is not taken, however often it is above zero."""
    taken, left = 0, 0
    for seed in range(12):
        table = make_table(examples=300, seed=seed)
        leaning = replace(table, logits_NEC=(table.logits_NEC + 0.25 * log_prior).astype(np.float32))
        choice = choose_adjustment(leaning, adjust="auto", taus=TAUS)
        found = re.search(r"difference ([+-][\d.]+) with a standard error of ([\d.]+)", choice.why)
        assert found is not None
        gain, error = float(found[1]), float(found[2])
        assert (choice.adjustment is not None) is (gain > 2 * error), choice.why
        taken += choice.adjustment is not None
        left += 0 < gain < 2 * error
    assert taken > 0
    assert left > 0


def test_the_difference_is_between_paired_answers(biased: ExitTable) -> None:
    """Cross-validated by hand: taus of one half, answers of the other; each class counts the same."""
    why = choose_adjustment(biased, adjust="auto", taus=TAUS).why
    first_N = stratified_part(biased.labels_N, 0.5, 0)
    gain_N = np.empty(biased.examples)
    for fitting_N in (first_N, ~first_N):
        fitting, judging = (
            replace(biased, logits_NEC=biased.logits_NEC[rows], labels_N=biased.labels_N[rows])
            for rows in (fitting_N, ~fitting_N)
        )
        fitted = choose_adjustment(fitting, adjust="on", taus=TAUS).adjustment
        assert fitted is not None
        right_EN = [
            (table.logits_at(k).argmax(axis=1) == judging.labels_N)
            for table in (replace(judging, adjustment=fitted), judging)
            for k in range(4)
        ]
        gain_N[~fitting_N] = np.mean(right_EN[:4], axis=0) - np.mean(right_EN[4:], axis=0)
    gain = 100 * gain_N.mean()  # 500 examples of every class
    error = 100 * gain_N.std() / np.sqrt(len(gain_N))
    assert f"difference {gain:+.2f} with a standard error of {error:.2f}" in why


def test_on_and_off(biased: ExitTable, make_table: TableFactory) -> None:
    assert choose_adjustment(biased, adjust="off", taus=TAUS).adjustment is None
    assert choose_adjustment(biased, adjust="off", taus=TAUS).why == ""
    asked = choose_adjustment(make_table(examples=30), adjust="on", taus=(0.5,))
    assert asked.adjustment is None or set(asked.adjustment.taus) <= {0.0, 0.5}
    assert asked.why.endswith("as requested")
    assert choose_adjustment(biased, adjust="on", taus=TAUS) == replace(
        choose_adjustment(biased, adjust="auto", taus=TAUS),
        why=choose_adjustment(biased, adjust="on", taus=TAUS).why,
    )


def test_balanced_accuracy_decides_also_where_the_split_is_not_balanced(biased: ExitTable) -> None:
    """Of a long-tailed split plain accuracy would keep the bias; each class counts the same here."""
    keep_N = np.random.default_rng(0).random(biased.examples) < np.array([1, 0.8, 0.6, 0.4, 0.3, 0.2])[biased.labels_N]
    tailed = replace(biased, logits_NEC=biased.logits_NEC[keep_N], labels_N=biased.labels_N[keep_N])
    choice = choose_adjustment(tailed, adjust="auto", taus=TAUS)
    assert choice.adjustment is not None
    assert choice.adjustment.taus == pytest.approx(LEANING, abs=0.41)


def test_taus_are_for_the_logits_of_the_loss(biased: ExitTable) -> None:
    """Cosines times 30 are the logits: of the cosines themselves a thirtieth is subtracted."""
    cosines = replace(biased, logits_NEC=(biased.logits_NEC / 30).astype(np.float32))
    whole, parts = (
        choose_adjustment(table, adjust="on", taus=TAUS, loss_scale=scale)
        for table, scale in ((biased, 1.0), (cosines, 30.0))
    )
    assert whole.adjustment is not None
    assert parts.adjustment is not None
    assert parts.adjustment.taus == pytest.approx([tau / 30 for tau in whole.adjustment.taus])
    assert parts.why == whole.why


def test_the_largest_candidate_is_remarked_on(biased: ExitTable) -> None:
    assert "refit.taus may end too early" in choose_adjustment(biased, adjust="on", taus=(0.5, 1.0)).why
    assert "refit.taus" not in choose_adjustment(biased, adjust="on", taus=TAUS).why


def test_what_cannot_be_compared_stays_plain(make_table: TableFactory) -> None:
    choice = choose_adjustment(make_table(examples=48), adjust="auto", taus=TAUS)
    assert (choice.adjustment, choice.why) == (None, "plain logits: 48 examples are too few to compare")
    empty = make_table(class_counts_C=np.array([5, 4, 0, 2, 1, 1]))
    assert "class 'c' has no training example" in choose_adjustment(empty, adjust="auto", taus=TAUS).why
    with pytest.raises(RequestError, match="logits cannot be adjusted: class 'c' has no training example"):
        choose_adjustment(empty, adjust="on", taus=TAUS)


def test_refusals(make_table: TableFactory) -> None:
    with pytest.raises(RequestError, match="calibrating on the test split is refused"):
        choose_adjustment(make_table(split="test"), adjust="auto", taus=TAUS)
    with pytest.raises(RequestError, match="unknown adjust 'yes'"):
        choose_adjustment(make_table(), adjust="yes", taus=TAUS)
