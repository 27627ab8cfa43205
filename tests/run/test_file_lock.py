"""One process at a time on a directory."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from elfnet.errors import WorkError
from elfnet.run.directory import file_lock

HOLD = """
import sys
from pathlib import Path
from elfnet.run.directory import file_lock
with file_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def _holder(directory: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_another_process_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    with _holder(directory) as process:
        with (
            pytest.raises(WorkError, match=r"another process is working on .*run; wait until it has ended"),
            file_lock(directory),
        ):
            pass
        process.communicate("\n")
    with file_lock(directory):
        pass


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    with _holder(tmp_path / "run") as process:
        process.kill()
        process.communicate()
    with file_lock(tmp_path / "run"):
        pass


def test_the_same_thread_may_enter_again_and_holds_on(tmp_path: Path) -> None:
    with file_lock(tmp_path / "run"):
        with file_lock(tmp_path / "run"):
            pass
        result = subprocess.run(
            [sys.executable, "-c", HOLD, str(tmp_path / "run")], input="\n", capture_output=True, text=True, check=False
        )
        assert "another process is working on" in result.stderr


def test_another_thread_is_refused(tmp_path: Path) -> None:
    refused: list[str] = []

    def enter() -> None:
        try:
            with file_lock(tmp_path / "run"):
                pass
        except WorkError as error:
            refused.append(str(error))

    with file_lock(tmp_path / "run"):
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    assert len(refused) == 1


def test_two_names_of_one_directory_are_one_lock(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with (
        _holder(tmp_path / "real") as process,
    ):
        with pytest.raises(WorkError, match="another process"), file_lock(tmp_path / "link"):
            pass
        process.communicate("\n")


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    with file_lock(tmp_path / "run"):
        assert [entry.name for entry in tmp_path.iterdir()] == [".run.lock"]
    assert list(tmp_path.iterdir()) == []
