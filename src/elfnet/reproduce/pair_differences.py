"""Is one row better than another? Image by image, from the records of both."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.evaluate.bootstrap import Difference
from elfnet.reproduce.paper_table import PaperTable
from elfnet.reproduce.right_answers import row_differences
from elfnet.reproduce.shown_points import BUDGETS, FULL

Found = Mapping[str, Difference | None]


def pair_differences(
    table: PaperTable, records: Mapping[tuple[str, str, int], Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Of every pair of the table that is run: row minus the other, by column and point, over the seeds that both have.

    Args:
        records: by row, column and seed.
    """
    answer = []
    for column in table.columns:
        for pair in table.pairs:
            both = {
                seed: (records[pair.against, column.name, seed], ours)
                for (row, name, seed), ours in sorted(records.items(), key=lambda item: item[0])
                if (row, name) == (pair.row, column.name) and (pair.against, name, seed) in records
            }
            for point in (FULL, *BUDGETS):
                compared = {seed: row_differences(*two, point) for seed, two in both.items()}
                found = {seed: differences for seed, differences in compared.items() if differences is not None}
                if found:
                    answer.append(
                        {"column": column.name, "row": pair.row, "against": pair.against, "point": point}
                        | {"seeds": list(found), "n": len(found)}
                        | {name: _over_seeds(list(found.values()), name) for name in ("all", *GROUP_NAMES)}
                    )
    return answer


def _over_seeds(found: Sequence[Found], name: str) -> dict[str, float | None] | None:
    """One seed has the interval over test images; several have their spread, in which other images are contained."""
    each = [difference for differences in found if (difference := differences[name]) is not None]
    if not each:
        return None
    low, high = (each[0].low, each[0].high) if len(each) == 1 else (None, None)
    return {
        "mean": mean(difference.estimate for difference in each),
        "deviation": stdev(difference.estimate for difference in each) if len(each) > 1 else None,
        "low": low,
        "high": high,
    }
