"""The campaign of faults: kills, full disks, damaged and hostile files, raw HTTP, concurrency, fuzzing, a soak test.

    python tests/faults/torture.py part images --seed 0 --count 1000 --out images.json
    python tests/faults/torture.py campaign --seed 0 --work build/torture --out benchmarks/results/torture.json

A part writes one JSON file. The campaign runs all parts, each in a process of its own, skips those whose file is there
already, and merges the files into one table. The seed and the number of a case are enough to repeat it.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

PARTS = {
    "images": ("fault_images:run", "damaged image files", (10_000,) * 4),
    "files": ("fault_files:run", "damaged and hostile files", (10_000,) * 4),
    "http": ("fault_http:run", "damaged HTTP requests", (5_000,) * 4),
    "interrupts": ("fault_interrupts:run", "interrupts while a checkpoint is read", (1_000,) * 2),
    "kills": ("fault_training:kills", "killed trainings, resumed", (50,) * 12),
    "disk": ("fault_training:full_disk", "trainings on a full disk, resumed", (50,) * 4),
    "concurrency": ("fault_training:concurrency", "two trainings in one directory, with kills", (50,) * 3),
    "fuzz": ("fault_fuzz:run", "coverage-guided inputs for readers of files and requests", (180,)),
    "api": ("fault_api:run", "requests generated from the OpenAPI description", (500,)),
    "soak": ("fault_soak:run", "one service under changing load and faulty clients", (3_550,)),
}
"""Function, description and size of each part; a size for each piece of the campaign, which takes less than an hour.

The size is the number of cases; for `fuzz` seconds per target, for `api` requests per operation, for `soak` seconds.
"""


def run_part(name: str, seed: int, count: int) -> dict[str, Any]:
    """Run one part and return its outcomes as plain data."""
    module, _, function = PARTS[name][0].partition(":")
    run: Callable[[int, int, Path], Any] = getattr(import_module(module), function)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="elfnet-faults-") as directory:
        outcomes = run(seed, count, Path(directory))
    seconds = round(time.perf_counter() - began, 1)
    return {"part": name, "seed": seed, "count": count, "seconds": seconds, **outcomes.to_dict()}


def merge(pieces: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Add up the pieces of each part."""
    parts: dict[str, dict[str, Any]] = {}
    for piece in pieces:
        part = parts.setdefault(
            piece["part"],
            {"seeds": [], "sizes": [], "cases": 0, "seconds": 0.0, "outcomes": {}, "failures": []},
        )
        part["seeds"].append(piece["seed"])
        part["sizes"].append(piece["count"])
        part["cases"] += piece["cases"]
        part["seconds"] = round(part["seconds"] + piece["seconds"], 1)
        part["failures"] += piece["failures"]
        for outcome, cases in piece["outcomes"].items():
            part["outcomes"][outcome] = part["outcomes"].get(outcome, 0) + cases
        if "figures" in piece:
            part.setdefault("figures", []).append(piece["figures"])
    machine = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }
    return {"machine": machine, "parts": parts}


def table(merged: dict[str, Any]) -> str:
    """The merged outcomes as a table in Markdown."""
    lines = ["| part | size, of the whole campaign | cases | failed | outcomes |", "|---|---|---|---|---|"]
    for name, part in merged["parts"].items():
        failed = part["outcomes"].get("FAILED", 0)
        others = ", ".join(f"{count:,} {what}" for what, count in part["outcomes"].items() if what != "FAILED")
        _, what, sizes = PARTS[name]
        size = f"{sum(part['sizes']):,} of {sum(sizes):,}"
        lines.append(f"| {what} | {size} | {part['cases']:,} | {failed:,} | {others} |")
    return "\n".join(lines)


def campaign(seed: int, work: Path, scale: float, *, seconds: float = math.inf) -> list[dict[str, Any]]:
    """Run the pieces that have no file in `work` yet, and start none after `seconds`; returns all that are there.

    Pieces of other sizes or seeds, which `part` has written to `work`, count as well.
    """
    work.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + seconds
    for name, (_, _, counts) in PARTS.items():
        for number, full_count in enumerate(counts):
            count, piece_seed = max(1, round(scale * full_count)), seed + number
            file = work / f"{name}-seed{piece_seed}-count{count}.json"
            if not file.is_file() and time.monotonic() < ends:
                options = ["--seed", str(piece_seed), "--count", str(count), "--out", str(file)]
                subprocess.run([sys.executable, __file__, "part", name, *options], check=True)
    files = [file for name in PARTS for file in sorted(work.glob(f"{name}-seed*-count*.json"))]
    return [json.loads(file.read_text()) for file in files]


def main(words: Sequence[str] | None = None) -> int:
    """Run a part or the campaign; the exit code is 1 if a case failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    part = verbs.add_parser("part")
    part.add_argument("name", choices=PARTS)
    part.add_argument("--count", type=int, default=100)
    whole = verbs.add_parser("campaign")
    whole.add_argument("--work", type=Path, default=Path("build/torture"), help="directory for the pieces")
    whole.add_argument("--scale", type=float, default=1.0, help="factor of the numbers of cases")
    whole.add_argument("--seconds", type=float, default=math.inf, help="start no piece after this time")
    for verb in (part, whole):
        verb.add_argument("--seed", type=int, default=0)
        verb.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(words)
    if args.verb == "part":
        found = run_part(args.name, args.seed, args.count)
        failed = found["outcomes"].get("FAILED", 0)
        for failure in found["failures"]:
            sys.stderr.write(f"{args.name}, seed {args.seed}: {failure}\n")
        sys.stderr.write(f"{args.name}: {found['cases']:,} cases, {failed} failed, {found['seconds']:g} s\n")
        _write(args.out, found)
        return 0
    merged = merge(campaign(args.seed, args.work, args.scale, seconds=args.seconds))
    _write(args.out, merged)
    sys.stdout.write(table(merged) + "\n")
    return int(any("FAILED" in part["outcomes"] for part in merged["parts"].values()))


def _write(path: Path, content: dict[str, Any]) -> None:
    """Write JSON under another name first, so that a killed part has no file and is run again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(content, indent=2) + "\n")
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main())
