"""The ASGI application: routes, exception handlers, middleware and the lifespan of the service."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from elfnet.serve import predict, routes
from elfnet.serve.errors import ApiError, add_exception_handlers, api_error_response
from elfnet.serve.middleware import HostMiddleware, OriginMiddleware, ResponseMiddleware
from elfnet.serve.responses import error_responses
from elfnet.serve.service import Service
from elfnet.version import __version__


def create_app(service: Service) -> FastAPI:
    """Create the ASGI application for one service, which it starts and closes."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        service.start(asyncio.get_running_loop())
        try:
            yield
        finally:
            service.close()

    # FastAPI's interactive documentation loads scripts from another host; /openapi.json has the same content.
    app = FastAPI(
        title="elfnet",
        version=__version__,
        description="Image classification with early exits: each request can set its own compute budget.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        # Every route can give these, from the HTTP server or the middleware.
        responses=error_responses(400, 408, 421, 431, 500, 503),
    )
    app.state.service = service
    app.include_router(predict.router)
    app.include_router(routes.router)
    add_exception_handlers(app, [*predict.router.routes, *routes.router.routes])
    # The middleware that is added last runs first.
    app.add_middleware(PredictFastPath, service=service)
    if service.settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=service.settings.allowed_origins,
            allow_methods=("GET", "POST", "PUT"),
            allow_headers=("authorization", "content-type"),
        )
    app.add_middleware(OriginMiddleware, service=service)
    app.add_middleware(HostMiddleware, service=service)
    app.add_middleware(ResponseMiddleware, service=service)
    return app


class PredictFastPath:
    """ASGI middleware that calls the predict route directly.

    FastAPI's routing of a request takes longer than parsing it. The route is registered in the router too, for
    OpenAPI and for the 405 response to other methods.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = predict.PREDICT_ROUTE
        if scope["type"] != "http" or scope["path"] != route.path or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        try:
            response = await predict.predict(Request(scope, receive), self._service)
        except ApiError as error:
            response = api_error_response(error)
        await response(scope, receive, send)
