"""Completion scripts: every verb and every flag, and the shell accepts them."""

import shutil
import subprocess

import pytest

from elfnet.cli.completion import SHELLS, flags_of, script
from elfnet.cli.main import VERBS, main


@pytest.mark.parametrize("shell", SHELLS)
def test_every_verb_with_its_flags(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert text == script(shell)
    for verb in VERBS:
        assert verb in text
    assert "budget" in text
    assert "train.epochs" in text


def test_flags_are_those_of_the_parser() -> None:
    assert {"--budget", "--top", "--out"} <= set(flags_of("predict"))


def test_bash_completes() -> None:
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    asked = """
COMP_WORDS=(elfnet pre); COMP_CWORD=1; _elfnet; echo "${COMPREPLY[@]}"
COMP_WORDS=(elfnet predict --bud); COMP_CWORD=2; _elfnet; echo "${COMPREPLY[@]}"
"""
    done = subprocess.run(["bash", "-c", script("bash") + asked], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["predict", "--budget"]


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "invalid choice: 'tcsh'" in capsys.readouterr().err
