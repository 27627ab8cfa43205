"""The HTTP service: predictions from an exported model, metrics, and a web page to try images.

A request passes through `server` (HTTP limits), `middleware` (response headers), `app`, `admission` (how much may be in
progress), `requests` (parsing), `predict` (decoding), `batcher` (one call of the engine for many requests) and
`responses`. Everything else that the service answers is in `routes`.

This package must not import torch. The names below are imported when they are first used, so that importing the
package needs none of the packages of the extra `serve`.
"""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.serve.app import create_app, read_token
    from elfnet.serve.server import bind_socket, build_server, serve
    from elfnet.serve.service import Sample, Service, read_samples
    from elfnet.serve.settings import ServeSettings
    from elfnet.serve.workers import BundleService, serve_workers

_MODULES = {
    "BundleService": "elfnet.serve.workers",
    "Sample": "elfnet.serve.service",
    "ServeSettings": "elfnet.serve.settings",
    "Service": "elfnet.serve.service",
    "bind_socket": "elfnet.serve.server",
    "build_server": "elfnet.serve.server",
    "create_app": "elfnet.serve.app",
    "read_samples": "elfnet.serve.service",
    "read_token": "elfnet.serve.app",
    "serve": "elfnet.serve.server",
    "serve_workers": "elfnet.serve.workers",
}

__all__ = [
    "BundleService",
    "Sample",
    "ServeSettings",
    "Service",
    "bind_socket",
    "build_server",
    "create_app",
    "read_samples",
    "read_token",
    "serve",
    "serve_workers",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
