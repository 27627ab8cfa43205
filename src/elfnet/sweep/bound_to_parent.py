"""Become another command that ends when the process that started it does, however that one ends.

    python -m elfnet.sweep.bound_to_parent PARENT COMMAND...

A sweep, or its worker on a cluster, may be killed (memory, say); what it ran would go on beside the run that repeats
it. Linux can send a signal then; elsewhere the command just runs.
"""

import ctypes
import os
import signal
import sys

_SET_SIGNAL_AT_PARENTS_DEATH = 1  # PR_SET_PDEATHSIG of prctl(2)


def bound_command(command: list[str]) -> list[str]:
    """The command, bound to the process that calls this."""
    return [sys.executable, "-m", __name__, str(os.getpid()), *command]


def main(words: list[str]) -> None:
    parent, *command = words
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_SIGNAL_AT_PARENTS_DEATH, int(signal.SIGTERM), 0, 0, 0)
        # It may have ended before the signal was asked for.
        if os.getppid() != int(parent):
            sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
