"""Run a command that ends when the process that started it ends, however that happens.

    python -m elfnet.sweep.die_with_parent PARENT COMMAND...

A sweep or a worker of a cluster may be killed, for instance when memory runs out. Without this module, its commands
would continue beside the repeated run. Linux sends a signal in this case; on other systems the command just runs.

Every run of a sweep starts this module, so it imports nothing of the package.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2)


def die_with_parent(command: list[str]) -> list[str]:
    """Wrap a command so that it ends with the calling process."""
    return [sys.executable, "-m", __name__, str(os.getpid()), *command]


def end_with_parent(parent: int) -> None:
    """Let the system send SIGTERM to this process when its parent process ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        # The parent may have ended before the request.
        if os.getppid() != parent:
            sys.exit(1)


def main(arguments: list[str]) -> None:
    """Request the signal, then replace this process by the command."""
    parent, *command = arguments
    end_with_parent(int(parent))
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
