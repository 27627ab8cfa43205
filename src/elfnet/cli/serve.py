"""elfnet serve"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from elfnet.cli.arguments import Parser
from elfnet.errors import RequestError, WorkError

# Packages of the extra `serve`.
SERVE_EXTRA = {"fastapi", "starlette", "uvicorn", "python_multipart", "prometheus_client"}


def parser() -> Parser:
    parser = Parser(
        "serve",
        "Answer over HTTP with a bundle, and show a page to try it at /. Requests are batched as they arrive;\n"
        "past the limits the answer is 503. Stops on Ctrl-C or SIGTERM, and finishes what it took.",
        usage="BUNDLE [--host HOST] [--port PORT] [--operating-point NAME | --budget B] [--shed-by-budget] ...",
        example="elfnet serve runs/elf/elf.elfnet --port 8000 --samples photos",
    )
    parser.add_argument("bundle", type=Path, help="from 'elfnet export'")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine)")
    parser.add_argument("--port", type=int, default=8000, help="0 lets the system choose (default: 8000)")
    parser.add_argument("--operating-point", metavar="NAME", help="to start with (default: the first of the family)")
    parser.add_argument("--budget", type=float, metavar="B", help="instead: the most accurate point within B")
    parser.add_argument("--shed-by-budget", action="store_true", help="lower the operating point under pressure")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="who may change the point (or $ELFNET_TOKEN)")
    parser.add_argument("--samples", type=Path, metavar="DIR", help="a folder with images that the page offers")
    parser.add_argument("--backend", metavar="NAME", help="onnxruntime (default), openvino, torch, torch-compiled")
    parser.add_argument("--variant", default="float32", metavar="NAME", help="float32 (default), int8 or bfloat16")
    parser.add_argument("--threads", type=int, metavar="N", help="of the backend (default: its own choice)")
    limits = parser.add_argument_group("limits")
    limits.add_argument("--max-batch", type=int, metavar="N", help="images of one engine call (default: 64)")
    limits.add_argument("--wait-ms", type=float, metavar="MS", help="how long a batch waits for more (default: 2)")
    limits.add_argument("--max-queue", type=int, metavar="N", help="images that may wait (default: 512)")
    limits.add_argument("--max-requests", type=int, metavar="N", help="requests at a time (default: 512)")
    limits.add_argument("--max-images", type=int, metavar="N", help="of one request (default: 32)")
    limits.add_argument("--max-pixels", type=int, metavar="N", help="of one image (default: 24000000)")
    limits.add_argument("--max-body-bytes", type=int, metavar="N", help="of one request (default: 16000000)")
    limits.add_argument("--max-held-bytes", type=int, metavar="N", help="of all requests (default: 128000000)")
    limits.add_argument("--read-seconds", type=float, metavar="S", help="for a header, then for a body (default: 20)")
    parser.add_argument("--access-log", action="store_true", help="a line for every request, on standard error")
    return parser


LIMITS = (
    "max_batch",
    "wait_ms",
    "max_queue",
    "max_requests",
    "max_images",
    "max_pixels",
    "max_body_bytes",
    "max_held_bytes",
    "read_seconds",
)


def run(words: Sequence[str]) -> int:
    asked = parser().parse_strictly(words)
    if asked.operating_point is not None and asked.budget is not None:
        raise RequestError("--operating-point and --budget both choose the point; give one of them")
    try:
        from elfnet.serve.routes import find_token
        from elfnet.serve.server import listen, serve
        from elfnet.serve.service import ServeSettings, Service, read_samples
    except ModuleNotFoundError as error:
        if error.name not in SERVE_EXTRA:
            raise
        raise WorkError(f"serving needs {error.name}: pip install 'elfnet[serve]'") from error

    from elfnet.deploy.load import DEFAULT_BACKEND, load

    given = {name: getattr(asked, name) for name in LIMITS if getattr(asked, name) is not None}
    settings = ServeSettings(**given, shed_by_budget=asked.shed_by_budget)
    token, samples = find_token(asked.token_file), read_samples(asked.samples)
    backend = asked.backend or DEFAULT_BACKEND
    model = load(asked.bundle, backend=backend, variant=asked.variant, threads=asked.threads)
    if asked.operating_point is not None or asked.budget is not None:
        model.set_operating_point(asked.budget if asked.operating_point is None else asked.operating_point)
    service = Service(model, name=asked.bundle.stem, settings=settings, token=token, samples=samples)
    listening = listen(asked.host, asked.port)
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    sys.stderr.write(
        f"serving {asked.bundle.name} at http://{shown}:{port}/ (point {model.operating_point}); Ctrl-C stops\n"
    )
    sys.stderr.flush()
    # The signal that ended the server is raised again once it has ended.
    with suppress(KeyboardInterrupt):
        serve(service, listening, log_level="info" if asked.access_log else "warning")
    return 0
