"""A request that is not answered as asked: a status and one sentence."""


class Refusal(Exception):  # noqa: N818 (an answer, not a failure)
    """Becomes `{"error": message}` with this status.

    Attributes:
        status: 4xx or 503.
        headers: to send along.
    """

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def overloaded(message: str, retry_seconds: int) -> Refusal:
    """503: come back later."""
    return Refusal(503, message, Retry_After=str(retry_seconds))


def too_large(message: str) -> Refusal:
    """413 to a request that came whole."""
    return Refusal(413, message)


class BodyTooLarge(Refusal):
    """413 to a client who is still sending; the connection is closed, as the rest is not kept."""

    def __init__(self, message: str) -> None:
        super().__init__(413, message, Connection="close")
