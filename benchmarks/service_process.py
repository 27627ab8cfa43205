"""`elfnet serve` in a process of its own, for benchmarks that measure it from outside."""

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def served(bundle: Path, *words: str, source: Path | None = None) -> Iterator[tuple[str, int]]:
    """The address and the process id of a service, once it is ready.

    Args:
        words: more arguments of `elfnet serve`.
        source: a folder with another version of the package; None: the one that is installed.
    """
    command = [sys.executable, "-m", "elfnet.cli.main", "serve", str(bundle), "--port", "0", *words]
    environment = dict(os.environ) if source is None else {**os.environ, "PYTHONPATH": str(source)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        found = re.search(r"http://[^\s/]+", said)
        if found is None:
            raise SystemExit(said + process.stderr.read())
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{found[0]}/readyz", timeout=10).close()
                break
            except OSError:
                time.sleep(0.05)
        yield found[0], process.pid
    finally:
        process.terminate()
        process.communicate()
