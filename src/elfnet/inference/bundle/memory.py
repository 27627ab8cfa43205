"""How much memory a bundle needs: a process of its own loads it and classifies one batch.

Run as `python -m elfnet.inference.bundle.memory BUNDLE VARIANT BATCH`; prints two numbers of bytes.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from elfnet.errors import WorkError
from elfnet.inference.bundle.manifest import PeakMemory

BATCH = 32


def measure_peak_memory(bundle: Path, *, variant: str = "float32", batch: int = BATCH) -> PeakMemory:
    """Largest resident size of a process that has only the base package to do with."""
    command = [sys.executable, "-m", __name__, str(bundle), variant, str(batch)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise WorkError(f"the new bundle cannot be run in a process of its own ({last}); nothing was written")
    before, peak = json.loads(done.stdout)
    return PeakMemory(batch=batch, bytes=peak, before_loading=before)


def largest_resident_bytes() -> int | None:
    """Of this process so far; None where the system does not tell."""
    status = Path("/proc/self/status")
    if status.is_file():
        # Not getrusage, which on Linux also counts the process that started this one, and that one has torch loaded.
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:
        return None
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024


def _main(bundle: str, variant: str, batch: str) -> None:
    from elfnet.inference.model import load

    before = largest_resident_bytes()
    model = load(bundle, variant=variant, threads=1)
    pixels = np.random.default_rng(0).integers(0, 256, (int(batch), *model.preprocess.shape), dtype=np.uint8)
    model.predict(pixels, batch=int(batch), operating_point="full" if "full" in model.operating_points else None)
    sys.stdout.write(json.dumps([before, largest_resident_bytes()]))


if __name__ == "__main__":
    _main(*sys.argv[1:])
