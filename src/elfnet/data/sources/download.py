"""Resumable downloads that are checked before they get their final name."""

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from io import BufferedReader
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from elfnet.errors import WorkError


def md5_of_bytes(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def md5_of_open_file(file: BufferedReader) -> str:
    return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def check_md5(file: Path, *, found: str, expected: str, way_out: str) -> None:
    """Refuse a file whose md5 is another than expected, in one line that names both."""
    if found != expected:
        raise WorkError(f"{file} is truncated or altered: md5 {found}, expected {expected}; {way_out}")


_CHUNK = 1 << 16
_PLAIN_STEPS = 10  # lines printed into a pipe, whatever the size


class _Report(Protocol):
    def __call__(self, done: int) -> None: ...


def download(
    url: str, destination: Path, *, md5: str, console: Console | None = None, timeout_seconds: float = 30.0
) -> Path:
    """Fetch `url` to `destination` and return it; an unfinished `<name>.part` from an earlier try is continued.

    The file takes its name only once its md5 is right, so a file that is there is whole.
    """
    part = destination.with_name(destination.name + ".part")
    by_hand = f"run again to go on, or fetch {url} by hand and put it at {destination}"
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        # A try that was cut short between the last byte and the renaming left a whole file: nothing to fetch then.
        if not part.exists() or _md5_on_disk(part) != md5:
            _fetch(url, part, console or Console(stderr=True), timeout_seconds)
            if (found := _md5_on_disk(part)) != md5:
                part.unlink()  # to continue a damaged file would never mend it
                check_md5(part, found=found, expected=md5, way_out=f"it was removed; {by_hand}")
        part.replace(destination)
    except (OSError, HTTPException) as error:  # urllib's errors and timeouts are OSErrors
        raise WorkError(f"cannot download {url}: {_reason(error)}; {by_hand}") from error
    return destination


def _md5_on_disk(path: Path) -> str:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return md5_of_open_file(file)


def _fetch(url: str, part: Path, console: Console, timeout_seconds: float) -> None:
    start = part.stat().st_size if part.exists() else 0
    try:
        response = _open(url, start, timeout_seconds)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 416 or start == 0:
            raise
        # Nothing lies beyond what we have, and what we have is not the file: begin again.
        start, response = 0, _open(url, 0, timeout_seconds)
    with response:
        if start and not _continues(response, start):
            start = 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length and length.isdigit() else None
        done = start
        with part.open("ab" if start else "wb") as file, _progress(console, part.stem, start, total) as report:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                done += len(chunk)
                report(done)
    if total is not None and done < total:
        raise HTTPException(f"the connection closed after {done} of {total} bytes")


def _open(url: str, start: int, timeout_seconds: float) -> HTTPResponse:
    headers = {"User-Agent": "elfnet", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    response: HTTPResponse = urllib.request.urlopen(
        urllib.request.Request(url, headers=headers), timeout=timeout_seconds
    )
    return response


def _continues(response: HTTPResponse, start: int) -> bool:
    """Whether the server sends what we asked for; one that ignores Range sends everything, with status 200."""
    return response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {start}-")


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code} {error.reason}"
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return " ".join((getattr(reason, "strerror", None) or str(reason) or type(reason).__name__).split())


@contextmanager
def _progress(console: Console, name: str, start: int, total: int | None) -> Iterator[_Report]:
    """A bar on a terminal, a line every tenth of the way in a pipe."""
    if console.is_terminal:
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
        with Progress(*columns, TransferSpeedColumn(), TimeRemainingColumn(), console=console) as bar:
            task = bar.add_task(name, total=total, completed=start)
            yield lambda done: bar.update(task, completed=done)
        return
    said = start * _PLAIN_STEPS // total if total else 0

    def say(done: int) -> None:
        nonlocal said
        if total and (step := done * _PLAIN_STEPS // total) > said:
            said = step
            megabytes = f"{done / 1e6:.1f} of {total / 1e6:.1f} MB"
            console.print(f"{name}: {megabytes}", markup=False, highlight=False, soft_wrap=True)

    yield say


DATA_VARIABLE = "ELFNET_DATA"


def cache_directory(environment: Mapping[str, str] | None = None) -> Path:
    """`$XDG_CACHE_HOME/elfnet`, or `~/.cache/elfnet`."""
    environment = os.environ if environment is None else environment
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "elfnet"


def data_places(directory: Path | None, environment: Mapping[str, str] | None = None) -> list[Path]:
    """Directories in the order they are searched: the one given, `$ELFNET_DATA`, the cache.

    The first one is where a download is put: whoever names a place wants the data there.
    """
    environment = os.environ if environment is None else environment
    named = environment.get(DATA_VARIABLE)
    places = [directory, Path(named) if named else None, cache_directory(environment)]
    return list(dict.fromkeys(place.expanduser() for place in places if place is not None))
