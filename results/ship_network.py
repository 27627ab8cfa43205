"""Put a calibrated run among the networks that have a name: exports it, and writes its facts and sample photos.

python results/ship_network.py RUN NAME --summary TEXT --licence TEXT --data TEXT [--samples PHOTOS] [--package]
"""

import argparse
import hashlib
import shlex
from pathlib import Path

import tomli_w
from PIL import Image

from elfnet import export_run, open_run
from elfnet.pretrained.catalogue import IN_CLONE, PACKAGED, NetworkFacts

SIDE = 144
"""Longer side of sample photos, in pixels."""


def facts_of(run_path: Path, file: Path, *, summary: str, licence: str, data: str, command: str) -> NetworkFacts:
    """Facts of an exported run; the accuracies are those of its metrics.json."""
    results = open_run(run_path).results()
    shown = ("full", "accurate", "economic", "budget=0.5", "budget=0.3")
    return NetworkFacts(
        summary=summary,
        licence=licence,
        data=data,
        command=command,
        test_images=results.n,
        accuracy={name: round(results.points[name].accuracy, 4) for name in shown if name in results.points},
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
    )


def copy_samples(photos: Path, folder: Path) -> None:
    """One photo per class folder, scaled down, named after its class."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in sorted(path for path in photos.iterdir() if path.is_dir()):
        first = sorted(kind.iterdir())[0]
        with Image.open(first) as photo:
            small = photo.convert("RGB")
            small.thumbnail((SIDE, SIDE))
            small.save(folder / f"{kind.name}.jpg", quality=85)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    for text in ("summary", "licence", "data", "command"):
        parser.add_argument(f"--{text}", required=True)
    parser.add_argument("--samples", type=Path, help="folder of class folders to take one photo per class from")
    parser.add_argument("--package", action="store_true", help="into the package instead of models/")
    args = parser.parse_args()
    folder = PACKAGED if args.package else IN_CLONE
    folder.mkdir(exist_ok=True)
    file = folder / f"{args.name}.onnx"
    export_run(open_run(args.run), file, overwrite=True, measure_memory=None)
    command = shlex.join(shlex.split(args.command))
    facts = facts_of(args.run, file, summary=args.summary, licence=args.licence, data=args.data, command=command)
    (folder / f"{args.name}.toml").write_text(tomli_w.dumps(facts.model_dump(mode="json")))
    if args.samples:
        copy_samples(args.samples, folder / args.name)


if __name__ == "__main__":
    main()
