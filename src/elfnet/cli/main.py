"""`elfnet VERB ...`: finds the verb, and turns failures into one line and an exit code.

0: done. 1: the work failed. 2: the request was wrong. 130: interrupted.
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
    "train": "train a recipe, evaluate it, calibrate it, write its report",
    "evaluate": "accuracy of a run, at any threshold, or against another run",
    "calibrate": "search thresholds on the calibration split: the family of operating points",
    "export": "write one file that runs without torch: graphs, weights, operating points",
    "predict": "classify image files with a bundle or a run",
    "serve": "answer over HTTP with a bundle, with a page to try it",
    "sweep": "train a recipe over a grid of settings, with one table at the end",
    "reproduce": "fill a table of the paper, with its own numbers beside",
    "bench": "time adaptive inference on this machine",
    "report": "one HTML file about one or several runs",
    "data": "list, prepare and describe data sets",
    "recipes": "list and show recipes",
}

# What to say of an interruption: the verbs whose work can be gone on with.
GOES_ON = {
    "train": "; what was finished is kept, and 'elfnet train --resume' goes on with the run",
    "sweep": "; progress is saved; run the same command to resume",
    "reproduce": "; progress is saved; run the same command to resume",
}

USAGE = """usage: elfnet VERB [options]

Early-exit networks for long-tailed classification.

{verbs}

'elfnet VERB --help' tells more. --debug shows the traceback of a failure. --version prints {version}.
Start with: elfnet train"""


def usage() -> str:
    verbs = "\n".join(f"  {name:<10} {what}" for name, what in VERBS.items())
    return USAGE.format(verbs=verbs, version=__version__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the command; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        code = _dispatch(words)
        sys.stdout.flush()  # here, where a full disk behind it can still be told of
        return code
    except ElfnetError as error:
        if debug:
            raise
        return _fail(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        if debug or error.name not in EXTRA_OF_PACKAGE:
            raise
        return _fail(missing_package(f"'elfnet {words[0]}'", error.name), 1)
    except KeyboardInterrupt:
        return _fail(f"interrupted{GOES_ON.get(words[0] if words else '', '')}", 130)
    except BrokenPipeError:
        # Whoever read our output has enough of it; nothing more can be said there.
        _give_up_on_output()
        return 0
    except OSError as error:
        # Files are written by elfnet.atomic, which says what is full: this is standard output.
        if debug or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _give_up_on_output()
        return _fail(f"cannot write {error.filename or 'to standard output'}: {error.strerror}; make room", 1)


def _give_up_on_output() -> None:
    """Python flushes standard output once more at its end: what is left then goes nowhere."""
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
    """A polite kill is an interruption: files are closed, and the line above is printed."""
    raise KeyboardInterrupt


def _fail(message: str, code: int) -> int:
    # One line, whatever a library put into the message.
    sys.stderr.write(f"elfnet: {' '.join(message.split())}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
