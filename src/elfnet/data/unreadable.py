"""What to do about an image that cannot be read: stop the run with its path, or skip, count and log it."""

import logging
from collections.abc import Iterable

from elfnet.errors import WorkError

_log = logging.getLogger("elfnet.data")


class UnreadableImageError(WorkError):
    """An image that is missing, damaged, too large, or of a kind that is not read; the message has its path."""


class Unreadable:
    """Keeps account of unreadable images.

    Args:
        action: "stop" raises at the first one; "skip" logs each once and counts them.
    """

    def __init__(self, action: str) -> None:
        self._stop = action == "stop"
        self._seen: set[str] = set()

    @property
    def count(self) -> int:
        """Different images that were skipped so far."""
        return len(self._seen)

    def meet(self, failures: Iterable[tuple[str, str]]) -> None:
        """Take (name, what is wrong) of images that could not be read."""
        for name, what in failures:
            if self._stop:
                raise UnreadableImageError(f"{what}; repair or remove it, or set data.unreadable=skip")
            if name not in self._seen:
                self._seen.add(name)
                _log.warning("skipped: %s (%d so far)", what, len(self._seen))
