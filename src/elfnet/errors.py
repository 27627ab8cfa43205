"""The two kinds of failure that a user sees as one line.

Everything that can go wrong through what a user asked for or has on disk is raised as one of these, with a message
that names the thing, its value and the way out. Any other exception is a defect of ours and keeps its traceback.
"""


class ElfnetError(Exception):
    """A failure that is reported to the user as one readable line; `exit_code` is the command's."""

    exit_code = 1


class RequestError(ElfnetError, ValueError):
    """What was asked for makes no sense: an unknown name, a value out of range, settings that contradict."""

    exit_code = 2


class WorkError(ElfnetError, RuntimeError):
    """The request was fine but the work failed: a file that is missing, truncated or altered, a loss that diverged."""
