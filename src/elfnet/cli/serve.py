"""elfnet serve"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from elfnet.cli.arguments import Parser, budget
from elfnet.errors import RequestError

if TYPE_CHECKING:
    from elfnet.calibrate.measured_cost import MeasuredCost, TimeBudget
    from elfnet.calibrate.operating_point import OperatingPoint
    from elfnet.calibrate.point_family import Family

DEMO = "clothing"
"""The network of --demo."""

# Flags that are fields of `ServeSettings`, whose defaults apply if they are not given.
LIMITS = (
    "max_batch",
    "wait_ms",
    "max_queue",
    "max_requests",
    "max_images",
    "max_pixels",
    "max_request_pixels",
    "max_held_pixels",
    "max_body_bytes",
    "max_held_bytes",
    "read_seconds",
    "request_seconds",
)


def parser() -> Parser:
    parser = Parser(
        "serve",
        "Serve predictions of a bundle over HTTP, with a web page at / to try images. Requests are batched as they\n"
        "arrive; beyond the limits the response is 503. A worker process that crashes is replaced. Ctrl-C or SIGTERM\n"
        "stops the service after the requests in progress.",
        usage="BUNDLE|--demo [--host HOST] [--port PORT] [--operating-point NAME | --budget B] [--shed-by-budget] ...",
        example="elfnet serve runs/elf/elf.onnx --port 8000 --samples photos",
    )
    parser.add_argument(
        "bundle",
        nargs="?",
        help="file written by 'elfnet export', a name of 'elfnet models ls', or hub:user/name",
    )
    parser.add_argument(
        "--demo", action="store_true", help=f"serve the network {DEMO} that ships with elfnet, with sample photos"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine)")
    parser.add_argument("--port", type=int, default=8000, help="0 lets the system choose (default: 8000)")
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="host name that clients use, besides localhost and --host; '*' allows all; may be repeated",
    )
    parser.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="web site whose pages may use the service, such as https://shop.example; may be repeated",
    )
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="processes, which divide the limits (default: 1)"
    )
    parser.add_argument(
        "--metrics-port", type=int, metavar="PORT", help="serve /metrics on this port instead of --port"
    )
    parser.add_argument(
        "--metrics-host", default="127.0.0.1", metavar="HOST", help="address of --metrics-port (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--operating-point", metavar="NAME", help="point at the start (default: accurate where it is better than full)"
    )
    parser.add_argument(
        "--budget",
        type=budget,
        metavar="B",
        help="instead: the most accurate point within this mean cost, or within a time: 5ms is the mean time per image "
        "on this machine, one image at a time",
    )
    parser.add_argument("--shed-by-budget", action="store_true", help="use cheaper points while the queue fills up")
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="token to change the operating point (or $ELFNET_TOKEN)"
    )
    parser.add_argument("--samples", type=Path, metavar="DIR", help="folder with images that the web page offers")
    parser.add_argument("--backend", metavar="NAME", help="onnxruntime (default), openvino, torch, torch-compiled")
    parser.add_argument("--variant", metavar="NAME", help="precision of a bundle, if it has several")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of the backend (default: its own choice)")
    limits = parser.add_argument_group("limits")
    limits.add_argument("--max-batch", type=int, metavar="N", help="images per engine call (default: 64)")
    limits.add_argument("--wait-ms", type=float, metavar="MS", help="how long a batch waits for more (default: 2)")
    limits.add_argument("--max-queue", type=int, metavar="N", help="images waiting (default: 512)")
    limits.add_argument("--max-requests", type=int, metavar="N", help="requests in progress (default: 512)")
    limits.add_argument("--max-images", type=int, metavar="N", help="images per request (default: 32)")
    limits.add_argument("--max-pixels", type=int, metavar="N", help="pixels per image (default: 24000000)")
    limits.add_argument(
        "--max-request-pixels", type=int, metavar="N", help="pixels of all images of one request (default: 96000000)"
    )
    limits.add_argument(
        "--max-held-pixels", type=int, metavar="N", help="pixels of all requests, until decoded (default: 384000000)"
    )
    limits.add_argument("--max-body-bytes", type=int, metavar="N", help="bytes per request (default: 16000000)")
    limits.add_argument("--max-held-bytes", type=int, metavar="N", help="bytes of all requests (default: 128000000)")
    limits.add_argument(
        "--read-seconds", type=float, metavar="S", help="time to send a header, and then a body (default: 20)"
    )
    limits.add_argument("--request-seconds", type=float, metavar="S", help="time for a whole request (default: 60)")
    parser.add_argument("--access-log", action="store_true", help="one line per request on standard error")
    return parser


def _bundle_and_samples(name: str | None, *, demo: bool, samples: Path | None) -> tuple[Path, Path | None]:
    """Find the file to serve; a network with a name brings its sample photos, unless others are given."""
    if demo == (name is not None):
        raise RequestError("name a bundle or give --demo, one of them; 'elfnet serve --demo' needs nothing else")

    from elfnet.pretrained.catalogue import shipped_networks
    from elfnet.pretrained.names import find_model

    chosen = DEMO if name is None else name
    path = find_model(chosen)
    shipped = shipped_networks().get(chosen)
    if samples is None and shipped is not None and path == shipped.path:
        samples = shipped.samples
    return path, samples


def _start_point(
    family: "Family", name: str | None, budget: "float | TimeBudget | None", times: "MeasuredCost | None"
) -> "OperatingPoint":
    if name is not None:
        return family.point(name)
    return family.default if budget is None else family.for_budget(budget, times=times)


def run(words: Sequence[str]) -> int:
    args = parser().parse_strictly(words)
    if args.operating_point is not None and args.budget is not None:
        raise RequestError("--operating-point and --budget both choose the point; give one of them")

    bundle, samples = _bundle_and_samples(args.bundle, demo=args.demo, samples=args.samples)
    from elfnet.inference.model import DEFAULT_BACKEND, load
    from elfnet.serve import BundleService, ServeSettings, bind_socket, read_samples, read_token, serve_workers
    from elfnet.serve.workers import open_points, threads_per_worker

    limits = {name: getattr(args, name) for name in LIMITS if getattr(args, name) is not None}
    # The service finds out its own address by itself; a name is known only here.
    host_names = (*args.allow_host, args.host) if args.host and ":" not in args.host else tuple(args.allow_host)
    settings = ServeSettings(
        **limits,
        shed_by_budget=args.shed_by_budget,
        allowed_hosts=host_names,
        allowed_origins=tuple(args.allow_origin),
        metrics_route=args.metrics_port is None,
    )
    token = read_token(args.token_file)
    read_samples(samples)
    settings.divide(args.workers)
    family, _ = open_points(bundle, args.variant)
    backend, threads = args.backend or DEFAULT_BACKEND, threads_per_worker(args.threads, args.workers)
    # Measured before the workers start, which would disturb each other; the model of this process is not kept.
    times = load(bundle, backend=backend, variant=args.variant, threads=threads).measure_times()
    point = _start_point(family, args.operating_point, args.budget, times)
    served = BundleService(
        bundle=bundle,
        settings=settings,
        token=token,
        samples=samples,
        backend=backend,
        variant=args.variant,
        threads=args.threads,
        times=times,
    )
    bound = bind_socket(args.host, args.port)
    host, port = bound.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    # Connections wait from now on, until a worker has loaded the model.
    bound.listen()
    sys.stderr.write(f"serving {bundle.name} at http://{shown}:{port}/ (point {point.name}); Ctrl-C stops\n")
    sys.stderr.flush()
    serve_workers(
        served,
        bound,
        point=point.name,
        workers=args.workers,
        metrics_address=None if args.metrics_port is None else (args.metrics_host, args.metrics_port),
        log_level="info" if args.access_log else "warning",
    )
    return 0
