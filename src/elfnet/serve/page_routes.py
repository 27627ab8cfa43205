"""The page at / and its files, read once: no path that comes from outside touches the disk."""

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import Response

from elfnet.serve.refusal import Refusal

PAGE = Path(__file__).parent / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
FILES = {path.name: path.read_bytes() for path in sorted(PAGE.iterdir()) if path.suffix in TYPES}

router = APIRouter(include_in_schema=False)


@router.get("/")
async def page() -> Response:
    return await page_file("index.html")


@router.get("/page/{name}")
async def page_file(name: str) -> Response:
    if name not in FILES:
        raise Refusal(404, "there is nothing here; see /openapi.json")
    return Response(FILES[name], media_type=TYPES[Path(name).suffix], headers={"Cache-Control": "no-cache"})
