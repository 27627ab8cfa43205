"""Scales and combination are taken where they help, and left where they do not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from elfnet.calibrate.confidence import choose_confidence
from elfnet.calibrate.confidence_scale import fit_scales
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable

TableFactory = Callable[..., ExitTable]


def independent_exits(make_table: TableFactory) -> ExitTable:
    """Exits equally good whose errors have nothing to do with one another: together they know more than any alone."""
    rng = np.random.default_rng(0)
    labels_N = np.arange(900) % 6
    logits_NEC = rng.normal(size=(900, 4, 6)).astype(np.float32)
    logits_NEC[np.arange(900), :, labels_N] += 1.5
    return make_table(logits_NEC=logits_NEC, labels_N=labels_N, confidence_scale=1.0)


def one_good_exit(make_table: TableFactory) -> ExitTable:
    """Early exits that know nothing and are sure of it: whoever listens to them loses."""
    table = independent_exits(make_table)
    logits_NEC = np.array(table.logits_NEC)
    logits_NEC[:, :-1] = np.random.default_rng(1).normal(size=(900, 3, 6))
    logits_NEC[np.arange(900), -1, table.labels_N] += 3.0
    return replace(table, logits_NEC=logits_NEC)


def test_exits_that_know_different_things_are_combined(make_table: TableFactory) -> None:
    assert choose_confidence(independent_exits(make_table)).combine


def test_experts_are_not_combined_again(make_table: TableFactory) -> None:
    """Their exits answer with means already."""
    table = replace(independent_exits(make_table), experts=2)
    assert not choose_confidence(table).combine
    with pytest.raises(RequestError, match=r"combine=on .* model\.experts=2 .*; use combine=off or auto"):
        choose_confidence(table, combine="on")


def test_exits_that_know_nothing_are_not_listened_to(make_table: TableFactory) -> None:
    choice = choose_confidence(one_good_exit(make_table), scales="own")
    assert not choice.combine
    assert choice.scale == (1.0,) * 4


def test_the_simplest_way_is_kept_where_nothing_is_gained(make_table: TableFactory) -> None:
    """The same scale at all exits is right here, so that fitting it again cannot help."""
    choice = choose_confidence(replace(make_table(), confidence_scale=1.0), combine="off")
    assert choice.scale == (1.0,) * 4
    assert "each exit alone" in choice.why


def test_badly_scaled_exits_get_fitted_scales(make_table: TableFactory) -> None:
    """The first exit speaks in a whisper and the second shouts; budgets then need thresholds that tell them apart."""
    table = make_table(examples=1200, confidence_scale=0.02)
    choice = choose_confidence(table, scales="fitted", combine="off")
    assert choice.scale == fit_scales(table)
    assert "as requested" in choice.why


def test_what_is_asked_for_is_done(make_table: TableFactory) -> None:
    table = make_table()
    on = choose_confidence(table, scales="own", combine="on")
    assert on.combine
    assert on.scale == (2.0,) * 4
    confidences = on.compute_confidences(table)
    assert confidences.combine
    assert confidences.confidence_scale == on.scale


def test_too_little_to_compare(make_table: TableFactory) -> None:
    why = choose_confidence(make_table(examples=30)).why
    assert why.endswith("; 30 examples are too few to compare other ways, which takes 50")
    one_exit = make_table(logits_NEC=make_table().logits_NEC[:, :1], cost_E=np.array([1.0]))
    assert "with one exit there is nothing to compare" in choose_confidence(one_exit).why


@pytest.mark.parametrize(
    ("asked", "message"), [({"scales": "fit"}, "did you mean 'fitted'"), ({"combine": "yes"}, "on")]
)
def test_unknown_choices(make_table: TableFactory, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        choose_confidence(make_table(), **asked)


def test_test_split_is_refused(make_table: TableFactory) -> None:
    with pytest.raises(RequestError, match="test split is refused"):
        choose_confidence(make_table(split="test"), scales="fitted", combine="off")
