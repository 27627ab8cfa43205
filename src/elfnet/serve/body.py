"""Reading a request within limits of size and time."""

import asyncio

from starlette.requests import ClientDisconnect, Request

from elfnet.serve.admission import Place
from elfnet.serve.refusal import BodyTooLarge, Refusal, too_large


async def read_body(request: Request, place: Place, *, most_bytes: int, seconds: float) -> bytes:
    """The whole body; 413 if it is too large, 408 if it takes too long, 503 if there is no room for it."""
    _judge_announced(request.headers.get("content-length"), most_bytes)
    try:
        async with asyncio.timeout(seconds):
            return await _read(request, place, most_bytes)
    except TimeoutError:
        raise Refusal(
            408, f"the request did not arrive within {seconds:g} s; send it faster", Connection="close"
        ) from None
    except ClientDisconnect:
        # Nobody will read this; it only ends the work.
        raise Refusal(400, "the client hung up", Connection="close") from None


def _judge_announced(length: str | None, most_bytes: int) -> None:
    if length is not None and length.isdecimal() and int(length) > most_bytes:
        raise BodyTooLarge(f"the request has {int(length):,} bytes, the limit is {most_bytes:,}; send less")


async def _read(request: Request, place: Place, most_bytes: int) -> bytes:
    body, more = bytearray(), True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk, more = message.get("body", b""), message.get("more_body", False)
        if len(body) + len(chunk) > most_bytes:
            # Whoever has sent everything is not waited for.
            kind = BodyTooLarge if more else too_large
            raise kind(f"the request has more than {most_bytes:,} bytes; send less")
        place.hold(len(chunk))
        body += chunk
    return bytes(body)
