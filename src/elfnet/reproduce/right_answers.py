"""Which test images a run answered right: a bit each, so that a record of a few kilobytes is enough to compare two rows
image by image, long after their runs are gone."""

# Shapes: N test examples in the order of their classes, C classes

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.family import Family
from elfnet.data.long_tail import GROUP_NAMES, FrequencyGroups
from elfnet.evaluate.bootstrap import Difference, paired_differences
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.replay import replay
from elfnet.run.directory import RunDirectory

RESAMPLES = 10_000


def right_answers(run: RunDirectory, points: Iterable[str]) -> dict[str, Any]:
    """Of a run that was calibrated and measured, at those of the points that it has."""
    table = ExitTable.open(run.table("test"))
    family = Family.open(run.policy_file, checkpoint_sha256=table.checkpoint_sha256)
    by_class = np.argsort(table.labels_N, kind="stable")
    wanted = set(points)
    return {
        "examples_of_class": np.bincount(table.labels_N, minlength=table.classes).tolist(),
        "points": {
            point.name: pack_bits((replay(table, point.policy).prediction_N == table.labels_N)[by_class])
            for point in family.points
            if point.name in wanted
        },
    }


def row_differences(
    first: Mapping[str, Any], second: Mapping[str, Any], point: str
) -> dict[str, Difference | None] | None:
    """Second record minus first at a point, of all examples and by group; None if they cannot be compared there."""
    answers = [record.get("right", {}).get("points", {}).get(point) for record in (first, second)]
    if None in answers or first["data"]["fingerprint"] != second["data"]["fingerprint"]:
        return None
    examples_C = np.array(first["right"]["examples_of_class"])
    right_first_N, right_second_N = (_unpack_bits(text, int(examples_C.sum())) for text in answers)
    # Groups are all that is asked for, so that they can stand for the classes: quicker where these are thousands.
    data = first["recipe"]["data"]
    groups = FrequencyGroups(many_above=data["many_above"], few_below=data["few_below"])
    group_C = np.asarray(groups.of_classes(np.array(first["data"]["class_counts"])), dtype=np.int64)
    found = paired_differences(
        right_first_N,
        right_second_N,
        np.repeat(group_C, examples_C),
        np.arange(len(GROUP_NAMES)),
        resamples=RESAMPLES,
    )
    return {name: found[name] for name in ("all", *GROUP_NAMES)}


def pack_bits(right_N: NDArray[np.bool_]) -> str:
    """As text for JSON."""
    return b64encode(np.packbits(right_N).tobytes()).decode()


def _unpack_bits(text: str, examples: int) -> NDArray[np.bool_]:
    return np.unpackbits(np.frombuffer(b64decode(text), np.uint8), count=examples).astype(bool)
