"""The command `elfnet VERB ...`: runs the verb and turns errors into one line and an exit code.

Exit codes: 0 success, 1 failure, 2 invalid request, 130 interrupted.
"""

import errno
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from types import FrameType

from elfnet.errors import ElfnetError
from elfnet.extras import EXTRA_OF_PACKAGE, missing_package
from elfnet.registry import unknown_name
from elfnet.version import __version__

VERBS = {
    "train": "train a network from a recipe, calibrate and evaluate it, and write a report",
    "evaluate": "evaluate a run, at any threshold, or compare it with another run",
    "calibrate": "fit operating points (thresholds) on the calibration split",
    "export": "write one file that runs without torch: graphs, weights and operating points",
    "predict": "classify image files with a bundle or a run",
    "serve": "serve a bundle over HTTP, with a demo page",
    "sweep": "train a recipe over a grid of settings and print one table",
    "reproduce": "reproduce a table of the paper and compare it with the published numbers",
    "bench": "measure the time of adaptive inference on this machine",
    "report": "write one HTML report about one or several runs",
    "data": "list, prepare and describe data sets",
    "recipes": "list and show recipes",
    "models": "list and show the trained networks that have a name",
    "completion": "print the completion script of a shell",
}

# What the message about an interruption says for verbs that can be resumed.
RESUME_HINTS = {
    "sweep": "; progress is saved; run the same command to resume",
    "reproduce": "; progress is saved; run the same command to resume",
}

USAGE = """usage: elfnet VERB [options]

Early-exit networks for long-tailed classification.

{verbs}

'elfnet VERB --help' shows the options of a verb. --debug shows the traceback of an error. --version prints {version}.
Start with: elfnet train"""


def usage() -> str:
    """Return the help text of the command."""
    verbs = "\n".join(f"  {name:<10} {what}" for name, what in VERBS.items())
    return USAGE.format(verbs=verbs, version=__version__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: the command line without the program name; `sys.argv[1:]` by default.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        code = _dispatch(words)
        sys.stdout.flush()  # so that a full disk is reported below
        return code
    except ElfnetError as error:
        if debug:
            raise
        return _fail(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if debug or package not in EXTRA_OF_PACKAGE:
            raise
        return _fail(missing_package(f"'elfnet {words[0]}'", package), 1)
    except KeyboardInterrupt as error:
        # A verb may say itself how to go on.
        hint = f"; {error}" if str(error) else RESUME_HINTS.get(words[0] if words else "", "")
        return _fail(f"interrupted{hint}", 130)
    except BrokenPipeError:
        # The reader of the output, such as `head`, has closed the pipe.
        _discard_output()
        return 0
    except OSError as error:
        # elfnet.atomic reports full disks for files, so this one is about standard output.
        if debug or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _discard_output()
        return _fail(f"cannot write {error.filename or 'to standard output'}: {error.strerror}; free some space", 1)


def _discard_output() -> None:
    """Redirect standard output to the null device, because Python flushes it once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(usage() + "\n")
        return 0
    if words[0] == "--version":
        sys.stdout.write(f"elfnet {__version__}\n")
        return 0
    verb, *rest = words
    if verb not in VERBS:
        raise unknown_name("verb", verb, list(VERBS))
    signal.signal(signal.SIGTERM, _interrupt)
    code: int = import_module(f"elfnet.cli.{verb}").run(rest)
    return code


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Handle SIGTERM like Ctrl-C, so that files are closed and the message about the interruption is printed."""
    raise KeyboardInterrupt


def _fail(message: str, code: int) -> int:
    # One line, whatever a library put into the message.
    sys.stderr.write(f"elfnet: {' '.join(message.split())}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
