"""Resumable downloads with md5 checks, and the directories that are searched for data."""

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

from elfnet.atomic import sync_directory
from elfnet.errors import WorkError


def md5_of_bytes(content: bytes) -> str:
    """Hex md5 of some bytes."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def md5_of_open_file(file: BufferedReader) -> str:
    """Hex md5 of a file from its current position to its end."""
    return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def check_md5(file: Path, *, found: str, expected: str, way_out: str) -> None:
    """Raise WorkError if an md5 differs from the expected one.

    Args:
        way_out: What the user can do, for the message.
    """
    if found != expected:
        raise WorkError(f"{file} is truncated or altered: md5 {found}, expected {expected}; {way_out}")


_CHUNK = 1 << 16
_PLAIN_STEPS = 10  # progress lines if the output is not a terminal


class _Report(Protocol):
    def __call__(self, done: int) -> None: ...


def download(
    url: str, destination: Path, *, md5: str, console: Console | None = None, timeout_seconds: float = 30.0
) -> Path:
    """Download a file and check its md5.

    The content is written to `<name>.part`, which is renamed after the check; an unfinished one is resumed.

    Args:
        md5: Expected checksum.
        console: For the progress display; None writes to standard error.
        timeout_seconds: Time without data after which the download fails.

    Returns:
        The destination.

    Raises:
        WorkError: If the download fails or its md5 is wrong.
    """
    part = destination.with_name(destination.name + ".part")
    by_hand = f"run again to resume, or download {url} by hand to {destination}"
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        # A run that was interrupted between the last byte and the renaming left a complete file.
        if not part.exists() or _md5_on_disk(part) != md5:
            _fetch(url, part, console or Console(stderr=True), timeout_seconds)
            if (found := _md5_on_disk(part)) != md5:
                part.unlink()  # resuming a damaged file would never repair it
                check_md5(part, found=found, expected=md5, way_out=f"it was removed; {by_hand}")
        part.replace(destination)
        sync_directory(destination.parent)
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
        # 416: the partial file is as long as the remote one but has another md5. Start again.
        start, response = 0, _open(url, 0, timeout_seconds)
    with response:
        if start and not _is_resumed(response, start):
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


def _is_resumed(response: HTTPResponse, start: int) -> bool:
    """Whether the server sends the requested range; a server without support for ranges sends all, with status 200."""
    return response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {start}-")


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code} {error.reason}"
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return " ".join((getattr(reason, "strerror", None) or str(reason) or type(reason).__name__).split())


@contextmanager
def _progress(console: Console, name: str, start: int, total: int | None) -> Iterator[_Report]:
    """Show progress: a bar on a terminal, else one line per tenth of the file."""
    if console.is_terminal:
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
        with Progress(*columns, TransferSpeedColumn(), TimeRemainingColumn(), console=console) as bar:
            task = bar.add_task(name, total=total, completed=start)
            yield lambda done: bar.update(task, completed=done)
        return
    printed = start * _PLAIN_STEPS // total if total else 0

    def report(done: int) -> None:
        nonlocal printed
        if total and (step := done * _PLAIN_STEPS // total) > printed:
            printed = step
            megabytes = f"{done / 1e6:.1f} of {total / 1e6:.1f} MB"
            console.print(f"{name}: {megabytes}", markup=False, highlight=False, soft_wrap=True)

    yield report


DATA_VARIABLE = "ELFNET_DATA"


def cache_directory(environment: Mapping[str, str] | None = None) -> Path:
    """The cache directory: `$XDG_CACHE_HOME/elfnet`, or `~/.cache/elfnet`."""
    environment = os.environ if environment is None else environment
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "elfnet"


def data_places(directory: Path | None, environment: Mapping[str, str] | None = None) -> list[Path]:
    """The directories that are searched for data, in order: `directory`, `$ELFNET_DATA`, the cache directory.

    A download is stored in the first one.
    """
    environment = os.environ if environment is None else environment
    named = environment.get(DATA_VARIABLE)
    places = [directory, Path(named) if named else None, cache_directory(environment)]
    return list(dict.fromkeys(place.expanduser() for place in places if place is not None))
