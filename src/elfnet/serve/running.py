"""From a request to the service that answers it."""

from fastapi import Request

from elfnet.serve.service import Service


async def running_service(request: Request) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)
    return service
