"""Holding out whole groups, so that no patient and no burst of photographs is on both sides of a split."""

# Shapes: N examples, G groups, C classes by label

from collections.abc import Sequence

import numpy as np

from elfnet.data.examples import Ints


def hold_out_groups(labels_N: Ints, groups_N: Ints, *, wanted: Sequence[Ints], subset_seed: int) -> list[Ints]:
    """Sorted positions held out for each entry of `wanted` (examples of each class, shape (C,)), as whole groups.

    Groups are visited in the seed's order. A group goes to the first split that still needs at least half of its
    examples, provided that every class in it keeps an example for training (two, if it has more than two). So the
    wanted numbers are met as nearly as the groups allow, and a class whose examples are all in one group stays in
    training. A split that would get nothing that way gets the group that suits it best.
    """
    order_N = np.argsort(groups_N, kind="stable")
    _, first_G = np.unique(groups_N[order_N], return_index=True)
    groups = [_Group(members, labels_N) for members in np.split(order_N, first_G[1:])]
    left_C = np.bincount(labels_N, minlength=len(wanted[0])).astype(np.int64)
    keep_C = np.minimum(left_C, np.where(left_C > 2, 2, 1))
    need_SC = [np.array(one, dtype=np.int64) for one in wanted]
    chosen: list[list[_Group]] = [[] for _ in wanted]

    def spare(group: _Group) -> bool:
        return bool((left_C[group.label_K] - group.count_K >= keep_C[group.label_K]).all())

    def give(group: _Group, split: int) -> None:
        chosen[split].append(group)
        need_SC[split][group.label_K] -= group.count_K
        left_C[group.label_K] -= group.count_K

    others = []
    for place in np.random.default_rng(subset_seed).permutation(len(groups)):
        group = groups[place]
        fits = [split for split, need_C in enumerate(need_SC) if 2 * group.fills(need_C) >= group.size]
        if fits and spare(group):
            give(group, fits[0])
        else:
            others.append(group)
    for split, need_C in enumerate(need_SC):
        if not chosen[split]:
            suited = [group for group in others if group.fills(need_C) and spare(group)]
            if suited:
                best = max(suited, key=lambda group: group.fills(need_C) / group.size)
                give(best, split)
                others.remove(best)
    none = np.zeros(0, dtype=np.int64)
    return [np.sort(np.concatenate([none, *(group.members for group in part)])) for part in chosen]


class _Group:
    """Positions of the examples of a group, and how many it has of each class that it has."""

    def __init__(self, members: Ints, labels_N: Ints) -> None:
        self.members, self.size = members, len(members)
        self.label_K, self.count_K = np.unique(labels_N[members], return_counts=True)

    def fills(self, need_C: Ints) -> int:
        """How many of its examples are still needed."""
        return int(np.minimum(need_C[self.label_K].clip(0), self.count_K).sum())
