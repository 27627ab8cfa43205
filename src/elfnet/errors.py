"""Errors that the user sees as one line: `RequestError` for wrong requests, `WorkError` for failed work.

Every failure caused by the request or by files of the user raises one of them. The message names the setting, its value
and a remedy. Any other exception is a bug in elfnet and keeps its traceback.
"""

__all__ = ["ElfnetError", "RequestError", "WorkError"]


class ElfnetError(Exception):
    """Base class of failures that are reported as one line; `exit_code` is the exit code of the command."""

    exit_code = 1


class RequestError(ElfnetError, ValueError):
    """The request is wrong: an unknown name, a value out of range, contradicting settings."""

    exit_code = 2


class WorkError(ElfnetError, RuntimeError):
    """The request is valid but the work failed: a missing or damaged file, a loss that diverged."""
