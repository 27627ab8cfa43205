"""The ASGI application."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from elfnet.serve import model_routes, monitor_routes, page_routes, predict_route
from elfnet.serve.envelope import Envelope
from elfnet.serve.error_answers import add_error_answers
from elfnet.serve.quick_way import QuickWay
from elfnet.serve.service import Service
from elfnet.version import __version__


def create_app(service: Service) -> FastAPI:
    """All routes around one service, which lives as long as the application does."""

    @asynccontextmanager
    async def life(_app: FastAPI) -> AsyncIterator[None]:
        service.start(asyncio.get_running_loop())
        try:
            yield
        finally:
            service.close()

    # The interactive documentation of FastAPI is fetched from another host; /openapi.json says the same.
    app = FastAPI(
        title="elfnet",
        version=__version__,
        description="Image classification that stops early, with the compute budget as a dial.",
        docs_url=None,
        redoc_url=None,
        lifespan=life,
    )
    app.state.service = service
    for routes in (predict_route, model_routes, monitor_routes, page_routes):
        app.include_router(routes.router)
    add_error_answers(app)
    app.add_middleware(QuickWay, service=service)
    app.add_middleware(Envelope, service=service)
    return app
