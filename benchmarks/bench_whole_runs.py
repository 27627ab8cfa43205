"""Whole runs: the time of the demo, and the memory that training CIFAR-10-LT takes.

    ELFNET_DATA=PATH python benchmarks/bench_whole_runs.py

The second part is left out without ELFNET_DATA: a benchmark does not download.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

from timing import write_results


def run_command(*words: str) -> tuple[float, float]:
    """Seconds, and the largest memory of any such process so far in megabytes."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "elfnet.cli.main", *words], check=True, capture_output=True)
    seconds = time.perf_counter() - began
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def main() -> None:
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        seconds, _ = run_command("train", "--out", f"{folder}/demo")
        results["demo"] = {"command": "elfnet train", "seconds": round(seconds, 1), "aim": "under 90 s on two cores"}
        if os.environ.get("ELFNET_DATA"):
            epoch = ("--train.epochs", "1", "--train.compile", "on", "--no-report", "--out", f"{folder}/cifar")
            _, megabytes = run_command("train", "cifar10-lt/elf-ce-drw", *epoch)
            command = "elfnet train cifar10-lt/elf-ce-drw --train.epochs 1 --train.compile on --no-report"
            results["memory"] = {"command": command, "peak_megabytes": round(megabytes), "aim": "under 2,000 MB"}
    write_results("whole_runs", results)


if __name__ == "__main__":
    main()
