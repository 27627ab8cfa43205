"""What a result needs to be believed: versions, hardware, seeds, data."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from elfnet.version import __version__

PACKAGES = ("torch", "numpy", "lightning-fabric", "scikit-learn", "safetensors", "pydantic")


def _package_versions() -> dict[str, str]:
    versions = {"elfnet": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def _processor() -> str:
    """The processor's name; Linux tells it in a file only."""
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def describe_environment() -> dict[str, Any]:
    """Versions and hardware; the command is kept without the directories of whoever ran it."""
    program, *arguments = sys.argv
    return {
        "versions": _package_versions(),
        "hardware": {"processor": _processor(), "cores": os.cpu_count(), "system": platform.system()},
        "command": " ".join([Path(program).name, *arguments]),
    }
