"""A command that ends with the process that started it."""

import signal
import subprocess
import sys

import pytest

from elfnet.sweep.die_with_parent import die_with_parent


def test_exit_code_and_output_are_the_commands() -> None:
    command = [sys.executable, "-I", "-c", "import sys; print(sys.argv[1:]); sys.exit(7)", "a b", "--c"]
    done = subprocess.run(die_with_parent(command), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "['a b', '--c']\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent ended")
def test_it_ends_when_its_parent_is_killed() -> None:
    forever = [sys.executable, "-I", "-c", "import signal; print('here', flush=True); signal.pause()"]
    starts = (
        "import subprocess, sys\n"
        "from elfnet.sweep.die_with_parent import die_with_parent\n"
        f"subprocess.run(die_with_parent({forever!r}))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", starts], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"here\n"
    parent.send_signal(signal.SIGKILL)
    # The pipe ends when the last process that holds it does; the test would hang if the command went on.
    assert parent.stdout.read() == b""
    parent.stdout.close()
    assert parent.wait() == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent ended")
def test_a_parent_that_has_ended_already() -> None:
    command = [sys.executable, "-m", "elfnet.sweep.die_with_parent", "1", sys.executable, "-c", "print('ran')"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
