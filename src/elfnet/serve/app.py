"""The ASGI application."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from elfnet.serve import predict as predict_routes
from elfnet.serve import routes
from elfnet.serve.errors import Refusal, add_error_answers, refusal_answer
from elfnet.serve.middleware import Envelope
from elfnet.serve.predict import PREDICT, predict
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
    app.include_router(predict_routes.router)
    app.include_router(routes.router)
    add_error_answers(app)
    app.add_middleware(QuickWay, service=service)
    app.add_middleware(Envelope, service=service)
    return app


class QuickWay:
    """ASGI middleware. The router knows the route as well, for OpenAPI and for other methods."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PREDICT.path or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        scope["route"] = PREDICT
        try:
            answer = await predict(Request(scope, receive), self._service)
        except Refusal as refusal:
            answer = refusal_answer(refusal)
        await answer(scope, receive, send)
