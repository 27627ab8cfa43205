"""The one busy route goes past FastAPI's router, which takes longer than reading the request does."""

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from elfnet.serve.error_answers import refusal_answer
from elfnet.serve.predict_route import PREDICT, predict
from elfnet.serve.refusal import Refusal
from elfnet.serve.service import Service


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
