"""The groups of examples in each of which a promise must hold."""

# Shapes: N examples

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.risk.losses import full_depth_answer
from elfnet.data.groups import GROUP_NAMES
from elfnet.evaluate.exit_table import ExitTable

GROUPINGS = ("none", "true", "predicted")


def members_by_group(table: ExitTable, groups: str) -> dict[str, NDArray[np.bool_]]:
    """Who belongs to each group, shape (N,); a frequency group without classes is left out.

    `none` is one group, `all`; `true` goes by the frequency group of the label, `predicted` by that of the full-depth
    answer, which needs no labels.
    """
    if groups == "none":
        return {"all": np.ones(table.examples, dtype=np.bool_)}
    class_N = table.labels_N if groups == "true" else full_depth_answer(table)
    group_C = table.group_of_class
    group_N = group_C[class_N]
    return {name: group_N == g for g, name in enumerate(GROUP_NAMES) if (group_C == g).any()}
