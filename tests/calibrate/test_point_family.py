"""The family of operating points, on disk and by budget."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from point_families import family_of, point
from pydantic import ValidationError
from run_files import change_json

from elfnet.calibrate.line_search import line_search
from elfnet.calibrate.operating_point import StoredPolicy
from elfnet.calibrate.point_family import Family
from elfnet.errors import RequestError, WorkError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.exits.logit_adjustment import LogitAdjustment
from elfnet.exits.policy import Policy, uniform_policy

TableFactory = Callable[..., ExitTable]


@pytest.fixture
def saved(make_table: TableFactory, tmp_path: Path) -> Path:
    path = tmp_path / "policy.json"
    line_search(make_table(), [0.5, "1.5/C"]).save(path)
    return path


def test_round_trip(make_table: TableFactory, tmp_path: Path) -> None:
    family = line_search(make_table(class_counts_C=make_table().class_counts_C * 0 + 50), [0.5, "1.5/C"])
    assert family.point("full").expected.accuracy_by_group["few"] is None
    path = tmp_path / "run" / "policy.json"
    family.save(path)
    assert Family.open(path) == family
    assert Family.open(path, checkpoint_sha256="a" * 64) == family


def test_an_adjustment_is_written_with_one_prior(make_table: TableFactory, tmp_path: Path) -> None:
    adjustment = LogitAdjustment((0.1, 0.2, 0.3, 0.4), (-0.5, -1.0, -2.0, -3.0, -4.0, -5.0))
    family = line_search(replace(make_table(), adjustment=adjustment), [0.5, "1.5/C"])
    assert {point.policy.adjustment for point in family.points} == {family.adjustment} == {adjustment}
    family.save(tmp_path / "policy.json")
    content = json.loads((tmp_path / "policy.json").read_text())
    assert (tmp_path / "policy.json").read_text().count("log_prior") == 1
    assert content["adjust_tau"] == content["points"][0]["policy"]["adjust_tau"] == [0.1, 0.2, 0.3, 0.4]
    assert Family.open(tmp_path / "policy.json") == family


def test_a_family_without_adjustment_is_written_as_before(saved: Path) -> None:
    assert not {"adjust_tau", "log_prior"} & set(json.loads(saved.read_text()))
    assert (Family.open(saved).adjustment, Family.open(saved).log_prior) == (None, ())


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"log_prior": []}, "log_prior must be finite numbers, one per class"),
        ({"log_prior": "none"}, "log_prior: Input should be a valid array"),
        ({"log_prior": None}, "log_prior: Input should be a valid array"),
        ({"adjust_tau": [0.1]}, "the logit adjustment has 1 exits, but the family has 4"),
        ({"adjust_tau": [-1.0, 0, 0, 0]}, "must be numbers of 0 or more"),
    ],
)
def test_a_damaged_adjustment(make_table: TableFactory, changes: dict[str, Any], complaint: str) -> None:
    adjusted = replace(make_table(), adjustment=LogitAdjustment((0.1,) * 4, (-1.0,) * 6))
    content = {**line_search(adjusted, [0.5]).to_dict(), **changes}
    with pytest.raises(WorkError, match=rf"is damaged \(.*{complaint}.*\); calibrate the run again"):
        Family.from_dict(content)
    del content["log_prior"]
    with pytest.raises(WorkError, match="adjust_tau and log_prior belong together"):
        Family.from_dict(content)


def test_points_with_different_priors_are_refused() -> None:
    first, second = (
        replace(point(name, 0.5, 0.5), policy=replace(uniform_policy(name, 0.5, 2, 1.0), adjustment=adjustment))
        for name, adjustment in (
            ("a", LogitAdjustment((1.0, 1.0), (-1.0, -2.0))),
            ("b", LogitAdjustment((1.0, 1.0), (-1.0, -3.0))),
        )
    )
    with pytest.raises(RequestError, match="different priors"):
        family_of(first, second)


def test_budget_takes_the_most_accurate_point_within_it() -> None:
    family = family_of(point("a", 0.6, 0.3), point("b", 0.8, 0.7), point("c", 0.7, 0.5), point("d", 0.8, 0.6))
    assert family.for_budget(0.3).name == "a"
    assert family.for_budget(0.55).name == "c"
    assert family.for_budget(2.0).name == "d"  # as accurate as b, and cheaper
    with pytest.raises(RequestError, match=r"within 0\.2; the cheapest is 'a' at 0\.3"):
        family.for_budget(0.2)
    with pytest.raises(RequestError, match="within nan"):
        family.for_budget(float("nan"))


def test_a_dearer_point_that_is_less_accurate_is_not_taken() -> None:
    assert family_of(point("a", 0.8, 0.3), point("b", 0.7, 0.9)).for_budget(1.0).name == "a"


def test_unknown_name_lists_the_choices() -> None:
    family = family_of(point("accurate", 0.6, 0.3), point("economic", 0.8, 0.7))
    with pytest.raises(RequestError, match=r"did you mean 'economic'.*accurate, economic"):
        family.point("econmic")


def test_impossible_families_are_refused() -> None:
    with pytest.raises(RequestError, match="at least one"):
        family_of()
    with pytest.raises(RequestError, match="name of operating point 'a' is used twice"):
        family_of(point("a", 0.6, 0.3), point("a", 0.8, 0.7))
    with pytest.raises(RequestError, match="has 2 exits, but the family has 1"):
        replace(family_of(point("a", 1, 1)), confidence_scale=(1.0,), cost=(1.0,), head_cost=(0.1,))
    with pytest.raises(RequestError, match="one confidence scale, cost and head cost per exit, found 2, 1 and 2"):
        replace(family_of(point("a", 1, 1)), cost=(1.0,))
    with pytest.raises(RequestError, match="holds policy"):
        replace(point("a", 1, 1), name="b")
    with pytest.raises(RequestError, match="unknown rule of operating point 'a' 'budgets'; did you mean 'budget'"):
        replace(point("a", 1, 1), rule="budgets")


def test_another_checkpoint_is_refused(saved: Path) -> None:
    with pytest.raises(WorkError, match="of checkpoint aaaaaaaaaaaa, not of bbbbbbbbbbbb"):
        Family.open(saved, checkpoint_sha256="b" * 64)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"there are no operating points at .*calibrate the run first"):
        Family.open(tmp_path / "policy.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", '{"format_version": 2}', '{"format_version": 1}', "\x00"])
def test_files_that_are_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "policy.json"
    path.write_text(text)
    with pytest.raises(WorkError) as caught:
        Family.open(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_format_version(saved: Path) -> None:
    change_json(saved, lambda content: content.update(format_version=1))
    with pytest.raises(WorkError, match="format 1, this version of elfnet reads 2; calibrate the run again"):
        Family.open(saved)


def test_truncated_file(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes()[:-20])
    with pytest.raises(WorkError, match="is damaged"):
        Family.open(saved)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("points",), []),
        (("points",), {}),
        (("points", 0), 3),
        (("points", 0, "name"), 5),
        (("points", 0, "name"), "other"),
        (("points", 1, "name"), "full"),
        (("points", 0, "same_as"), 1),
        (("points", 0, "rule"), "luck"),
        (("points", 0, "promise"), 3),
        (("points", 0, "policy", "combine"), 1),
        (("points", 0, "policy"), None),
        (("points", 0, "policy", "thresholds"), [0.5]),
        (("points", 0, "policy", "thresholds", 0), 1.5),
        (("points", 0, "policy", "confidence_scale", 0), "1"),
        (("points", 0, "expected"), {}),
        (("points", 0, "expected", "accuracy"), None),
        (("points", 0, "expected", "mean_cost"), "cheap"),
        (("points", 0, "expected", "accuracy_by_group"), {"many": 1.0}),
        (("points", 0, "expected", "exit_share"), 4),
        (("checkpoint_sha256",), 7),
        (("checkpoint_sha256",), ""),
        (("split",), None),
        (("n",), "many"),
        (("confidence_scale",), None),
        (("confidence_scale",), [1.0]),
        (("cost",), [1.0]),
        (("head_cost",), "none"),
        (("cost_unit",), 5),
        (("extra",), 1),
        (("points", 0, "extra"), 1),
        (("points", 0, "expected", "extra"), 1),
    ],
)
def test_damaged_fields(saved: Path, where: tuple[str | int, ...], value: Any) -> None:
    def damage(content: Any) -> None:
        for key in where[:-1]:
            content = content[key]
        content[where[-1]] = value

    change_json(saved, damage)
    with pytest.raises(WorkError, match=r"is damaged.*calibrate the run again") as caught:
        Family.open(saved)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "field", ["points", "checkpoint_sha256", "split", "n", "confidence_scale", "cost", "head_cost", "cost_unit"]
)
def test_missing_fields(saved: Path, field: str) -> None:
    change_json(saved, lambda content: content.pop(field))
    with pytest.raises(WorkError, match=rf"is damaged \({field}: Field required\); calibrate the run again"):
        Family.open(saved)


STORED = Path(__file__).parents[1] / "integration" / "stored" / "policy.json"


def stored(content: object) -> StoredPolicy:
    return StoredPolicy.model_validate_json(json.dumps(content))


@pytest.mark.parametrize(
    "policy",
    [
        Policy("p", (0.1, 0.7), (1.0, 2.0, 3.0)),
        Policy("branchy", (0.3,), (1.0, 1.0), measure="entropy"),
        Policy("together", (), (1.0,), combine=True),
    ],
    ids=lambda policy: policy.name,
)
def test_a_policy_is_read_back(policy: Policy) -> None:
    assert stored(policy.to_dict()).policy(()) == policy


def test_policies_had_no_measure_once() -> None:
    assert stored({"name": "p", "thresholds": [], "confidence_scale": [1], "combine": False}).policy(()).measure == (
        "probability"
    )


def test_an_adjusted_policy_needs_the_prior_to_be_read() -> None:
    policy = Policy("p", (0.1, 0.7), (1.0, 2.0, 3.0), adjustment=LogitAdjustment((0.5, 1.0, 0.0), (-0.1, -2.0)))
    content = policy.to_dict()
    assert content["adjust_tau"] == [0.5, 1.0, 0.0]
    assert stored(content).policy((-0.1, -2.0)) == policy
    with pytest.raises(RequestError, match="log_prior must be finite numbers, one per class"):
        stored(content).policy(())
    with pytest.raises(RequestError, match="has 3 exits and a logit adjustment for 2"):
        stored({**content, "adjust_tau": [0.5, 1.0]}).policy((-0.1, -2.0))


@pytest.mark.parametrize(
    "change",
    [
        {"more": 1},
        {"name": 3},
        {"thresholds": ["0.5"]},
        {"thresholds": 0.5},
        {"thresholds": [True]},
        {"thresholds": None},
        {"confidence_scale": [1.0, None]},
        {"combine": 1},
        {"measure": "margin"},
        {"adjust_tau": "1"},
    ],
    ids=str,
)
def test_other_content_is_refused(change: dict[str, object]) -> None:
    content = Policy("p", (0.5,), (1.0, 1.0)).to_dict()
    with pytest.raises(ValidationError):
        stored({**content, **change})


@pytest.mark.parametrize("change", [{"thresholds": [1.5]}, {"confidence_scale": [1.0]}, {"name": ""}], ids=str)
def test_a_policy_that_cannot_be_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(RequestError):
        stored({**Policy("p", (0.5,), (1.0, 1.0)).to_dict(), **change}).policy(())


def test_the_file_of_version_0_1_0_is_read_and_written_with_a_hash(tmp_path: Path) -> None:
    family, file = Family.open(STORED), tmp_path / "policy.json"
    family.save(file)
    assert Family.open(file) == family
    before, now = (json.loads(path.read_text()) for path in (STORED, file))
    assert len(now.pop("sha256")) == 64
    assert now == before


def test_an_altered_file_is_one_line_with_the_way_out(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    Family.open(STORED).save(file)
    file.write_text(file.read_text().replace('"n": 60', '"n": 61'))
    with pytest.raises(
        WorkError, match=r"policy\.json was altered after it was written \(its hash .*; calibrate the run again$"
    ):
        Family.open(file)
    # Without its hash it is a file of an earlier version.
    change_json(file, lambda _: None)
    assert Family.open(file).n == 61


def test_single_byte_mutations_are_refused_or_mean_the_same(tmp_path: Path) -> None:
    """Replaced, inserted and removed bytes anywhere in the file, and every byte of the hash and its name."""
    file, rng = tmp_path / "policy.json", random.Random(7)
    small = Family.open(STORED)
    family = Family.from_dict({**small.to_dict(), "points": small.to_dict()["points"][:3]})
    family.save(file)
    original = file.read_bytes()
    end = range(original.index(b'"sha256"') - 4, len(original))
    positions = [*(rng.randrange(len(original)) for _ in range(600)), *end]
    refused = 0
    for position in positions:
        mutated, value = bytearray(original), rng.choice(b'0123456789eE+-.,:"{}[] \n\tabcxyz\x00\xff')
        match rng.randrange(3):
            case 0:
                mutated[position] = value
            case 1:
                mutated.insert(position, value)
            case _:
                del mutated[position]
        file.write_bytes(mutated)
        try:
            found = Family.open(file)
        except WorkError:
            refused += 1
        else:
            assert found == family, (position, bytes(mutated[max(0, position - 20) : position + 20]))
    # Most of the rest is white space between fields.
    assert refused > 0.4 * len(positions)
