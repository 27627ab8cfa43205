"""policy.json: its schema, and its hash."""

import json
import random
from pathlib import Path

import pytest
from pydantic import ValidationError
from run_files import change_json

from elfnet.calibrate.family import Family
from elfnet.calibrate.policy_file import StoredPolicy
from elfnet.errors import RequestError, WorkError
from elfnet.exits.logit_adjustment import LogitAdjustment
from elfnet.exits.policy import Policy

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
