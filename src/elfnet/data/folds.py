"""Folds of the training split, for cross-fitting: each fold is judged by a network that is trained on the others.

No example is held out from the final network. Fold 0 stands for it; folds are counted from 1.
"""

# Shapes: N examples, C classes by label, K folds, G groups

from dataclasses import replace

import numpy as np

from elfnet.data.splits import Splits, fingerprint
from elfnet.data.types import E, Examples, Ints


def stratified_folds(labels_N: Ints, folds: int, seed: int) -> Ints:
    """Return a random fold of each example, 0 to K - 1; the sizes of a class in the folds differ by at most one."""
    shuffled_N = np.random.default_rng(seed).permutation(len(labels_N))
    by_class_N = shuffled_N[np.argsort(labels_N[shuffled_N], kind="stable")]
    fold_N = np.empty(len(labels_N), dtype=np.int64)
    fold_N[by_class_N] = np.arange(len(labels_N)) % folds
    return fold_N


def held_out_in_fold(train: Examples, *, classes: int, folds: int, seed: int) -> Ints:
    """Return the fold in which each training example is held out, 1 to K; 0 if it never is.

    Folds are stratified by class. A group of examples is never divided. Examples without which a class would have none
    left to train on are never held out.

    Args:
        folds: number of folds, K.
        seed: selects the folds.
    """
    labels_N, groups_N = train.labels_N, train.groups_N
    if groups_N is None:
        groups_N = np.arange(len(labels_N))
        fold_N = 1 + stratified_folds(labels_N, folds, seed)
    else:
        fold_N = _folds_of_groups(labels_N, groups_N, classes=classes, folds=folds, seed=seed)
    count_KC = np.zeros((folds + 1, classes), dtype=np.int64)
    np.add.at(count_KC, (fold_N, labels_N), 1)
    # All examples of such a class are in one fold.
    alone_N = (count_KC[fold_N, labels_N] == count_KC.sum(axis=0)[labels_N]) & (fold_N > 0)
    fold_N[np.isin(groups_N, groups_N[alone_N])] = 0
    return fold_N


def _folds_of_groups(labels_N: Ints, groups_N: Ints, *, classes: int, folds: int, seed: int) -> Ints:
    """Assign whole groups, largest first, each to the fold that has the fewest examples of the classes in it."""
    _, group_N = np.unique(groups_N, return_inverse=True)
    count_GC = np.zeros((int(group_N.max()) + 1, classes), dtype=np.int64)
    np.add.at(count_GC, (group_N, labels_N), 1)
    shuffled_G = np.random.default_rng(seed).permutation(len(count_GC))
    order_G = shuffled_G[np.argsort(-count_GC[shuffled_G].sum(axis=1), kind="stable")]
    fold_G = np.zeros(len(count_GC), dtype=np.int64)
    count_KC = np.zeros((folds, classes), dtype=np.int64)
    for group in order_G:
        present = count_GC[group] > 0
        fold = int(np.lexsort((count_KC.sum(axis=1), count_KC[:, present].sum(axis=1)))[0])
        fold_G[group] = 1 + fold
        count_KC[fold] += count_GC[group]
    chosen_N: Ints = fold_G[group_N]
    return chosen_N


def hold_out_fold(splits: Splits[E], *, folds: int, fold: int, seed: int) -> Splits[E]:
    """Return the splits with one fold of the training examples as the calibration split.

    Args:
        splits: without a calibration split.
        folds: number of folds.
        fold: counted from 1; 0 keeps all training examples and an empty calibration split.
        seed: selects the folds.
    """
    if fold == 0:
        return splits
    classes = len(splits.class_names)
    is_held_out_N = held_out_in_fold(splits.train, classes=classes, folds=folds, seed=seed) == fold
    train = splits.train.take(np.flatnonzero(~is_held_out_N))
    calibration = splits.train.take(np.flatnonzero(is_held_out_N))
    return replace(
        splits,
        train=train,
        calibration=calibration,
        train_indices=splits.train_indices[~is_held_out_N],
        calibration_indices=splits.train_indices[is_held_out_N],
        class_counts_C=train.class_counts(classes),
        calibration_counts_C=calibration.class_counts(classes),
        fingerprint=fingerprint(splits.class_names, train, calibration, splits.test),
    )
