"""Requests that are generated from the service's own OpenAPI description (Schemathesis)."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from fault_case import Outcomes
from fault_http import running_service

TOKEN = "secret"
LEFT_OUT = "positive_data_acceptance"
"""The check that what fits the schema is accepted: a schema cannot say which bytes are an image."""


def run(seed: int, count: int, directory: Path) -> Outcomes:
    """Send up to `count` generated requests per operation and phase; every response must be as it is documented.

    Raises:
        ImportError: Schemathesis is not installed.
    """
    if find_spec("schemathesis") is None:
        raise ImportError("schemathesis is not installed: pip install -e '.[torture]'")
    with running_service(token=TOKEN) as port:
        words = ["run", f"http://127.0.0.1:{port}/openapi.json", "--header", f"Authorization: Bearer {TOKEN}"]
        words += ["--checks", "all", "--exclude-checks", LEFT_OUT, "--seed", str(seed), "--max-examples", str(count)]
        words += ["--continue-on-failure", "--generation-database", "none", "--no-color"]
        done = subprocess.run(
            [sys.executable, "-m", "schemathesis.cli", *words],
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
        )
    return _outcomes(done)


def _outcomes(done: "subprocess.CompletedProcess[str]") -> Outcomes:
    outcomes = Outcomes()
    generated = re.search(r"([\d,]+) generated", done.stdout)
    if generated is None:
        outcomes.fail(f"Schemathesis did not run: {done.stdout[-300:]} {done.stderr[-300:]}")
        return outcomes
    failures = re.findall(r"^_{3,} (.+?) _{3,}\n(.*?)(?=^Reproduce with)", done.stdout, re.MULTILINE | re.DOTALL)
    for operation, what in failures:
        outcomes.fail(f"{operation}: {what}")
    if done.returncode and not failures:
        outcomes.fail(f"exit code {done.returncode}: {done.stdout[-300:]}")
    outcomes.counts["as documented"] = int(generated[1].replace(",", "")) - len(failures)
    return outcomes
