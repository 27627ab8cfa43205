"""Damaged HTTP requests over raw sockets to a running service."""

import base64
import io
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

import elfnet
from elfnet.serve import ServeSettings, Service, bind_socket, build_server
from fault_case import Outcomes, damaged

STORED = Path(__file__).parents[1] / "integration" / "stored"
TIMEOUT = 60.0
HEALTHY = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def run(seed: int, count: int, _directory: Path) -> Outcomes:
    """Every response is a valid status other than 500, or the connection is closed; the service goes on."""
    outcomes = Outcomes()
    with running_service() as port:
        requests = _requests()
        for case in range(count):
            rng = np.random.default_rng((seed, case))
            request = damaged(requests[case % len(requests)], rng)
            try:
                response = _send(port, request)
            except TimeoutError:
                outcomes.fail(f"case {case}: no response, and the connection stays open")
                continue
            except OSError:
                outcomes.add("connection reset")
                continue
            status = response[9:12].decode(errors="replace") if response.startswith(b"HTTP/1.1 ") else ""
            if response and (not status.isdecimal() or status == "500"):
                outcomes.fail(f"case {case}: {response[:80]!r}")
            else:
                outcomes.add(status or "closed without a response")
            if case % 50 == 49 and not _send(port, HEALTHY).startswith(b"HTTP/1.1 200 "):
                outcomes.fail(f"after case {case} the service does not answer")
    return outcomes


@contextmanager
def running_service(token: str | None = None) -> Iterator[int]:
    """Serve the stored bundle from a thread; yields its port."""
    model = elfnet.load(STORED / "bundle.elfnet")
    service = Service(model, name="digits", settings=ServeSettings(read_seconds=5.0), token=token)
    bound = bind_socket("127.0.0.1", 0)
    server = build_server(service, log_level="critical")
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        yield bound.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        bound.close()


def _send(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        parts = []
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def _png() -> bytes:
    file = io.BytesIO()
    Image.new("L", (32, 32), 90).save(file, "PNG")
    return file.getvalue()


FORM = b'--b\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n' + _png() + b"\r\n--b--\r\n"
JSON_BODY = json.dumps({"images": [base64.b64encode(_png()).decode()], "top": 2}).encode()
"""Bodies of valid requests."""


def _requests() -> list[bytes]:
    parts = (JSON_BODY[:50], JSON_BODY[50:])
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    return [
        _post(b"multipart/form-data; boundary=b", FORM),
        _post(b"application/json", JSON_BODY),
        b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n" + chunks,
        b"PUT /v1/operating-point HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n"
        b"Content-Length: 2\r\n\r\n{}",
        b"GET /v1/model HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n",
    ]


def _post(kind: bytes, body: bytes) -> bytes:
    header = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
    return header % (kind, len(body)) + body
