"""Writing the report of a run, as a process and within one.

    ELFNET_DATA=PATH python benchmarks/bench_report.py RUN

RUN is calibrated; with the images of its test split at hand (ELFNET_DATA) those are shown too, as a user would have it.
The process is `elfnet report RUN`, start-up included. Processor time is given beside the wall clock, since the machine
may be busy.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench_listing import measured
from elfnet.report import read_runs, write_report
from timing import write_results

ROUNDS = 5


def within(run: str, file: Path) -> dict[str, Any]:
    """Of `write_report` in this process, whose imports and caches are warm after the first round."""
    seconds, processor = [], []
    for _ in range(ROUNDS):
        began, used = time.perf_counter(), time.process_time()
        write_report([run], file)
        seconds.append(time.perf_counter() - began)
        processor.append(time.process_time() - used)
    return {
        "seconds": round(median(seconds), 2),
        "processor_seconds": round(median(processor), 2),
        "worst_seconds": round(max(seconds), 2),
    }


def main(run: str) -> None:
    (record,) = read_runs([run])
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "report.html"
        command = [sys.executable, "-m", "elfnet.cli.main", "report", run, "--out", str(file)]
        results = {
            "run": f"{record.method}, {record.network}",
            "test_images": record.results.n,
            "rounds": ROUNDS,
            "process": measured(command, runs=ROUNDS),
            "in_process": within(run, file),
            "shows_test_images": "data:image/" in file.read_text(encoding="utf-8"),
            "megabytes_written": round(file.stat().st_size / 1e6, 2),
            "aim": "10,000 images: under 10 s, under 5 MB",
        }
    write_results("report", results)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
