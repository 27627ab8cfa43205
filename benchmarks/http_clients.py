"""Clients in a process of their own, so that they do not share the service's interpreter lock.

    python benchmarks/http_clients.py PORT CLIENTS SECONDS < REQUESTS

Each client sends one request after the other on its connection, and waits for each answer; the requests, each after its
length in eight bytes, are used in turn. Prints JSON: "answered", a list of (status, seconds), and "processor_seconds"
of this process. Requests are made beforehand, sockets are used bare, and an answer is not parsed beyond its length: a
client costs little beside what it measures.
"""

import json
import select
import socket
import struct
import sys
import time
from itertools import cycle

LENGTH = b"content-length:"


class Client:
    """One connection with at most one request under way."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def ask(self, request: bytes) -> None:
        self.began = time.perf_counter()
        self.socket.sendall(request)

    def hear(self) -> int | None:
        """Take what came: the status, once the answer is whole."""
        more = self.socket.recv(65_536)
        assert more, "the service hung up"
        self._received += more
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found:
            return None
        length = head.lower().partition(LENGTH)[2].partition(b"\r\n")[0]
        if len(body) < int(length):
            return None
        self._received = b""
        return int(head[9:12])


def crowd(port: int, clients: int, seconds: float, requests: list[bytes]) -> list[tuple[int, float]]:
    answered: list[tuple[int, float]] = []
    turn = cycle(requests)
    poll = select.poll()
    connected = {}
    for _ in range(clients):
        client = Client(port)
        connected[client.socket.fileno()] = client
        poll.register(client.socket, select.POLLIN)
    until = time.perf_counter() + seconds
    for client in connected.values():
        client.ask(next(turn))
    while connected:
        for number, _ in poll.poll():
            client = connected[number]
            status = client.hear()
            if status is None:
                continue
            now = time.perf_counter()
            answered.append((status, now - client.began))
            if now < until:
                client.ask(next(turn))
            else:
                poll.unregister(number)
                connected.pop(number).socket.close()
    return answered


def split(content: bytes) -> list[bytes]:
    requests, at = [], 0
    while at < len(content):
        (length,) = struct.unpack_from(">Q", content, at)
        requests.append(content[at + 8 : at + 8 + length])
        at += 8 + length
    return requests


if __name__ == "__main__":
    port, clients, seconds = sys.argv[1:]
    answered = crowd(int(port), int(clients), float(seconds), split(sys.stdin.buffer.read()))
    sys.stdout.write(json.dumps({"answered": answered, "processor_seconds": time.process_time()}))
