"""`elfnet data describe` and making splits from a list with as many lines and classes as iNaturalist'18 has.

    python benchmarks/bench_listing.py

Each is a process of its own, so that start-up counts and peak memory is its own. The listed files do not exist: a
listing is described from its lines, and splits are made with data.unreadable=skip. Processor time is given beside the
wall clock, since the machine may be busy.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench_subset import SIZES, counts_of
from timing import write_results

SPLITS = """
import sys
from elfnet.data.build import load_splits
from elfnet.recipe.load import load_recipe
settings = {"data.train": sys.argv[1], "data.unreadable": "skip", "data.profile": sys.argv[2], "data.ratio": 100}
print(len(load_splits(load_recipe("csv/ce", settings).data).train))
"""
MEASURED = """
import json, resource, subprocess, sys, time
began = time.perf_counter()
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
seconds = time.perf_counter() - began
used = resource.getrusage(resource.RUSAGE_CHILDREN)
found = {"code": done.returncode, "seconds": seconds, "processor": used.ru_utime + used.ru_stime}
print(json.dumps(found | {"megabytes": used.ru_maxrss / 1024, "error": done.stderr[-500:]}))
"""


def write_list(file: Path, share: float) -> int:
    """A list like iNaturalist'18's, or a share of its lines; gives the number of lines."""
    classes, largest, total, _ = SIZES["iNaturalist'18"]
    counts = counts_of(classes, largest, total)
    if share < 1:
        counts = np.maximum((counts * share).astype(int), 1)
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(classes), counts))
    with file.open("w") as lines:
        for number, label in enumerate(labels.tolist()):
            lines.write(f"train_val2018/Plantae/{label}/{number:032x}.jpg {label}\n")
    return len(labels)


def measured(command: list[str], runs: int = 3) -> dict[str, Any]:
    """Median seconds and largest peak of a command; a process in between, so that peaks do not add up."""
    found = []
    for _ in range(runs):
        done = subprocess.run([sys.executable, "-c", MEASURED, *command], capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout))
        if found[-1]["code"]:
            raise SystemExit(found[-1]["error"])
    return {
        "seconds": round(median(one["seconds"] for one in found), 2),
        "processor_seconds": round(median(one["processor"] for one in found), 2),
        "peak_megabytes": round(max(one["megabytes"] for one in found)),
    }


def main() -> None:
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        for share in (0.25, 0.5, 1.0):
            file = Path(place) / "list.txt"
            lines = write_list(file, share)
            describe = [sys.executable, "-m", "elfnet.cli.main", "data", "describe", str(file), "--json"]
            results[f"{lines:,} lines"] = {
                "describe": measured(describe),
                "splits as they are": measured([sys.executable, "-c", SPLITS, str(file), "none"]),
                "splits made long-tailed": measured([sys.executable, "-c", SPLITS, str(file), "exponential"]),
            }
    write_results("listing", {**results, "aim": "under 5 s and 500 MB at 437,513 lines, memory linear"})


if __name__ == "__main__":
    main()
