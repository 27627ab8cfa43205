"""The hardware and versions that a benchmark's figures belong to."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def describe_environment() -> dict[str, Any]:
    """Versions and hardware, for the head of a result file."""
    return {
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "torch": _version("torch"),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "platform": f"{platform.system()} {platform.machine()}",
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    """The processor's own name; Linux tells it in /proc, other systems through `platform`."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"
