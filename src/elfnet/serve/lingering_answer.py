"""An answer to somebody who is still sending: closing on bytes that nobody read would reset the connection, and the
client would see that instead of the answer."""

import asyncio
from contextlib import suppress

from fastapi.responses import JSONResponse
from starlette.types import Receive, Scope, Send

MOST_DROPPED_BYTES = 64_000_000
DROP_SECONDS = 10.0


class LingeringAnswer(JSONResponse):
    """Sent at once, ended when the rest of the request has come or a bound is reached."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await drop_rest(receive, most_bytes=MOST_DROPPED_BYTES, seconds=DROP_SECONDS)
        await send({"type": "http.response.body", "body": b""})


async def drop_rest(receive: Receive, *, most_bytes: int, seconds: float) -> None:
    """Read what is left of a body and keep none of it; stops at either bound, and when the client hangs up."""
    dropped, more = 0, True
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while more and dropped < most_bytes:
                message = await receive()
                dropped += len(message.get("body", b""))
                more = message.get("more_body", False)
