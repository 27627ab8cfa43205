"""A table of feature rows with more than ten thousand classes, as health records have: one .npz file.

    python results/write_generated_codes.py codes.npz
    elfnet train features --data.train codes.npz --train.epochs 4

Every class is a point in 32 dimensions, and its rows lie around it: from 60 rows of the most frequent one to 4.
"""

import argparse
from pathlib import Path

import numpy as np

CLASSES, FEATURES = 10_500, 32
MOST, FEWEST, NOISE = 60, 4, 0.3


def main() -> None:
    parser = argparse.ArgumentParser(description="Write generated feature rows of more than ten thousand classes.")
    parser.add_argument("out", type=Path, help=".npz file to make")
    out: Path = parser.parse_args().out
    rng = np.random.default_rng(0)
    counts_C = np.maximum(FEWEST, (MOST * np.arange(1.0, CLASSES + 1) ** -0.3).astype(int))
    labels_N = np.repeat(np.arange(CLASSES), counts_C)
    centre_CF = rng.normal(size=(CLASSES, FEATURES)).astype(np.float32)
    rows_NF = centre_CF[labels_N] + NOISE * rng.normal(size=(len(labels_N), FEATURES)).astype(np.float32)
    np.savez(out, X=rows_NF, y=labels_N)


if __name__ == "__main__":
    main()
