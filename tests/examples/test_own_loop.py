"""The programs of "In your own training loop": short, shown as they are, and running from data to an exported file."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import elfnet

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "examples" / "own_loop").glob("*.py"))
NEEDED = {
    "plain": ["transformers"],
    "with_lightning": ["lightning", "transformers"],
    "with_trainer": ["transformers", "accelerate"],
    "with_accelerate": ["accelerate"],
}


def _run(program: Path, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program)], cwd=folder, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_all_programs_are_known() -> None:
    assert {program.stem for program in PROGRAMS} == set(NEEDED)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_program_is_short_and_the_page_shows_it(program: Path) -> None:
    text = program.read_text()
    assert len(text.splitlines()) <= 40
    assert f"```python\n{text}```" in (ROOT / "docs" / "own-loop.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_program_runs(program: Path, tmp_path: Path) -> None:
    for package in NEEDED[program.stem]:
        if find_spec(package) is None:
            pytest.skip(f"needs {package}, which make test-all installs")
    printed = _run(program, tmp_path)
    assert "mean_cost" in printed or "of the cost" in printed
    (file,) = tmp_path.glob("*.onnx")
    assert len(elfnet.load(file).class_names) == 10


@pytest.mark.slow
@pytest.mark.parametrize("package", ["torchvision", "timm"])
def test_other_backbones_fit_into_the_plain_loop(package: str, tmp_path: Path) -> None:
    working = subprocess.run([sys.executable, "-c", f"import {package}"], check=False, capture_output=True)
    if working.returncode:
        pytest.skip(f"{package} is not installed, or does not fit this torch")
    page = (ROOT / "docs" / "own-loop.md").read_text()
    (line,) = re.findall(rf"\| {package} \| `(.+)` \|", page)
    lines = [f"import {package}", *(ROOT / "examples" / "own_loop" / "plain.py").read_text().splitlines()[1:]]
    lines = [line if text.startswith("model = ") else text for text in lines]
    changed = tmp_path / "changed.py"
    changed.write_text("\n".join(lines))
    assert "of the cost" in _run(changed, tmp_path)
