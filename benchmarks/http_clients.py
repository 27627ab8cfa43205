"""Clients in a process of their own, so that they do not share the service's interpreter lock.

    python benchmarks/http_clients.py PORT CLIENTS SECONDS < REQUEST

Each client sends the same request again and again on its connection, and waits for the answer. Prints JSON: a list of
(status, seconds). The request is made once and the answer is not parsed beyond its length: a client costs little beside
what it measures.
"""

import asyncio
import json
import re
import sys
import time

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


async def ask(port: int, request: bytes, until: float, answered: list[tuple[int, float]]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < until:
        began = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        found = LENGTH.search(head)
        assert found is not None, head
        await reader.readexactly(int(found.group(1)))
        answered.append((int(head[9:12]), time.perf_counter() - began))
    writer.close()


async def crowd(port: int, clients: int, seconds: float, request: bytes) -> list[tuple[int, float]]:
    answered: list[tuple[int, float]] = []
    until = time.perf_counter() + seconds
    await asyncio.gather(*(ask(port, request, until, answered) for _ in range(clients)))
    return answered


if __name__ == "__main__":
    port, clients, seconds = sys.argv[1:]
    answered = asyncio.run(crowd(int(port), int(clients), float(seconds), sys.stdin.buffer.read()))
    sys.stdout.write(json.dumps(answered))
