"""The service on the one file, against the service of the commit before there was one, which ran stage after stage.

    ELFNET_DATA=DIR python benchmarks/bench_service_before.py [FILE]

FILE is an exported file; without it, the network for CIFAR-100-LT in models/. The older code comes from git, and gets
the same stages as a bundle of its own form. Both services run at the same time as processes of their own, and 64
clients in another process ask one and then the other, one image per request. Ratios are taken within rounds. The
processor time per request is that of the service alone, and says more than the rate where other work is on the machine.
"""

import hashlib
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

from bench_one_file import exported_stages, test_images
from bench_serve import crowd, request_of, summary
from elfnet.inference.bundle.manifest import MANIFEST, WEIGHTS, Manifest, identity_of
from elfnet.inference.bundle.one_file import OneFile, open_one_file
from elfnet.pretrained.names import find_model
from elfnet.run.json_file import content_sha256
from service_process import served
from timing import write_results

BEFORE = "bc8e396"
"""The commit before `elfnet export` wrote one ONNX file."""
ROOT = Path(__file__).parents[1]
CLIENTS, SECONDS, ROUNDS = 64, 5.0, 5
BUDGETS = (0.6, 1.0)
PICTURES = 64
AIM = "at least 1.3 times the requests per second of the commit before"


def older_code(place: Path) -> Path:
    """Take the package as of `BEFORE` from git."""
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", BEFORE, "src"], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(place, filter="data")
    return place / "src"


def older_bundle(bundle: OneFile, path: Path) -> Path:
    """Write the stages of a file as version 0.1.0 did: a zip with one graph per stage and a manifest."""
    files = {f"stages/{k + 1}.onnx": graph for k, graph in enumerate(exported_stages(bundle))}
    # Only the torch backend reads the weights.
    graphs, files[WEIGHTS] = list(files), b"none"
    about = bundle.manifest.model_dump(mode="json")
    manifest: dict[str, Any] = {
        "format": "elfnet-bundle",
        "format_version": 1,
        "elfnet_version": "0.1.0",
        **{name: about[name] for name in ("class_names", "preprocessing", "multiply_adds", "provenance")},
        "variants": {
            "float32": {"precision": "float32", "graphs": graphs, "family": about["variants"]["float32"]["family"]}
        },
        "files": {
            name: {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
            for name, content in files.items()
        },
        "size_bytes": sum(map(len, files.values())),
    }
    checked = Manifest.model_validate_json(json.dumps(manifest))
    content = {**checked.model_dump(mode="json"), "identity": identity_of(checked)}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MANIFEST, json.dumps({**content, "sha256": content_sha256(content)}))
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def requests_of(bundle: OneFile) -> list[bytes]:
    """One request per test image."""
    preprocess = bundle.manifest.preprocessing.preprocess()
    images_NHWK = test_images(bundle)[:PICTURES].transpose(0, 2, 3, 1)
    pixels_NHWK = (255 * (images_NHWK * np.array(preprocess.std) + np.array(preprocess.mean))).round().astype(np.uint8)
    return [request_of(Image.fromarray(pixels)) for pixels in pixels_NHWK]


def processor_seconds(process: int) -> float:
    """Processor time of a process and of those that it started."""
    place = Path("/proc") / str(process)
    fields = (place / "stat").read_text().rpartition(")")[2].split()
    children = [int(child) for task in (place / "task").iterdir() for child in (task / "children").read_text().split()]
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(processor_seconds(child) for child in children)


def compare(services: Mapping[str, tuple[int, int]], requests: list[bytes]) -> dict[str, Any]:
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in services}
    for port, _ in services.values():
        crowd(port, CLIENTS, 1.0, requests)
    for turn in range(ROUNDS):
        # Each round begins with the other one.
        for name in sorted(services, reverse=turn % 2 == 1):
            port, process = services[name]
            before = processor_seconds(process)
            answered, _ = crowd(port, CLIENTS, SECONDS, requests)
            used = processor_seconds(process) - before
            rounds[name].append({**summary(answered, SECONDS), "processor_ms": 1e3 * used / len(answered)})
    result: dict[str, Any] = {}
    for figure in ("requests_per_second", "processor_ms", "p99_ms"):
        of = {name: [float(each[figure]) for each in found] for name, found in rounds.items()}
        ratios = [now / before for now, before in zip(of["now"], of["before"], strict=True)]
        result[figure] = {
            **{name: round(statistics.median(found), 3) for name, found in of.items()},
            "now_to_before": round(statistics.median(ratios), 3),
            "by_round": [round(ratio, 3) for ratio in ratios],
        }
    return result


def main(name: str) -> None:
    bundle = open_one_file(Path(find_model(name)))
    requests = requests_of(bundle)
    results = {}
    with TemporaryDirectory() as directory:
        place = Path(directory)
        code = {"before": older_code(place), "now": ROOT / "src"}
        files = {"before": older_bundle(bundle, place / "older.elfnet"), "now": bundle.path}
        for budget in BUDGETS:
            with ExitStack() as running:
                services = {}
                for which in code:
                    words = ("--budget", str(budget))
                    address, process = running.enter_context(served(files[which], *words, source=code[which]))
                    services[which] = int(address.rpartition(":")[2]), process
                results[f"budget {budget}"] = compare(services, requests)
            print(budget, results[f"budget {budget}"], flush=True)
    about = {"what": bundle.path.name, "before": BEFORE, "clients": CLIENTS, "seconds": SECONDS, "rounds": ROUNDS}
    load = [round(each, 2) for each in os.getloadavg()]
    write_results("service_before", {**about, "load_average": load, "results": results, "aim": AIM})


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cifar100-lt")
