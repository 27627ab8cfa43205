"""Downloads from a server on this machine: whole, continued, cut short, damaged."""

import hashlib
import io
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from rich.console import Console

from elfnet.data.sources.download import cache_directory, data_places, download
from elfnet.errors import WorkError

CONTENT = bytes(range(256)) * 4000  # a megabyte
MD5 = hashlib.md5(CONTENT).hexdigest()


class FileServer(ThreadingHTTPServer):
    """Serves one file; notes the Range of every request."""

    daemon_threads = False  # closing waits for the threads of its requests
    content = CONTENT
    understands_range = True
    cut_after: int | None = None  # bytes after which the connection is closed
    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file.tar.gz"


class Handler(BaseHTTPRequestHandler):
    server: FileServer

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.ranges.append(wanted)
        content, start = self.server.content, 0
        if self.server.status != 200:
            self.send_error(self.server.status)
            return
        if wanted and self.server.understands_range:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        body = content[start:]
        self.wfile.write(body if self.server.cut_after is None else body[: self.server.cut_after])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("no_proxy", "*")
    with FileServer() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join(timeout=10)
        assert not thread.is_alive()


def quiet() -> Console:
    return Console(file=io.StringIO())


def test_a_whole_download_in_a_pipe_says_plain_lines(server: FileServer, tmp_path: Path) -> None:
    console = quiet()
    target = tmp_path / "new" / "file.tar.gz"
    assert download(server.url, target, md5=MD5, console=console) == target
    assert target.read_bytes() == CONTENT
    assert [path.name for path in target.parent.iterdir()] == ["file.tar.gz"]
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[-1] == "file.tar.gz: 1.0 of 1.0 MB"


def test_a_terminal_gets_a_bar(server: FileServer, tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    download(server.url, tmp_path / "file.tar.gz", md5=MD5, console=console)
    assert isinstance(console.file, io.StringIO)
    assert "━" in console.file.getvalue()


def test_a_cut_download_is_kept_and_continued(server: FileServer, tmp_path: Path) -> None:
    target, part = tmp_path / "file.tar.gz", tmp_path / "file.tar.gz.part"
    server.cut_after = 300_000
    with pytest.raises(WorkError, match="closed after 300000 of 1024000 bytes; run again to resume, or download"):
        download(server.url, target, md5=MD5, console=quiet())
    assert not target.exists()
    assert part.read_bytes() == CONTENT[:300_000]
    server.cut_after = None
    download(server.url, target, md5=MD5, console=quiet())
    assert server.ranges == [None, "bytes=300000-"]
    assert target.read_bytes() == CONTENT
    assert not part.exists()


def test_a_server_that_ignores_range_starts_from_scratch(server: FileServer, tmp_path: Path) -> None:
    server.understands_range = False
    (tmp_path / "file.tar.gz.part").write_bytes(CONTENT[:1000])
    download(server.url, tmp_path / "file.tar.gz", md5=MD5, console=quiet())
    assert server.ranges == ["bytes=1000-"]
    assert (tmp_path / "file.tar.gz").read_bytes() == CONTENT


def test_a_part_that_is_whole_needs_no_network(tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    download("http://127.0.0.1:9/file", tmp_path / "file", md5=MD5, console=quiet())
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_part_longer_than_the_file_starts_from_scratch(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file.tar.gz.part").write_bytes(CONTENT + b"more")
    download(server.url, tmp_path / "file.tar.gz", md5=MD5, console=quiet())
    assert server.ranges == [f"bytes={len(CONTENT) + 4}-", None]
    assert (tmp_path / "file.tar.gz").read_bytes() == CONTENT


def test_an_altered_file_never_gets_its_name(server: FileServer, tmp_path: Path) -> None:
    server.content = CONTENT[:-1] + b"?"
    found = hashlib.md5(server.content).hexdigest()
    with pytest.raises(WorkError, match=rf"md5 {found}, expected {MD5}; it was removed"):
        download(server.url, tmp_path / "file.tar.gz", md5=MD5, console=quiet())
    assert list(tmp_path.iterdir()) == []


def test_an_altered_download_leaves_an_older_file_alone(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file.tar.gz").write_bytes(b"old")
    server.content = b"wrong"
    with pytest.raises(WorkError, match="truncated or altered"):
        download(server.url, tmp_path / "file.tar.gz", md5=MD5, console=quiet())
    assert (tmp_path / "file.tar.gz").read_bytes() == b"old"


def test_an_answer_that_is_not_the_file(server: FileServer, tmp_path: Path) -> None:
    server.status = 404
    way_out = re.escape(f"by hand to {tmp_path / 'file.tar.gz'}")
    with pytest.raises(WorkError, match=f"the server answered 404 Not Found; .*{way_out}"):
        download(server.url, tmp_path / "file.tar.gz", md5=MD5, console=quiet())


def test_no_network_is_one_line_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with FileServer() as closed:
        url = closed.url
    with pytest.raises(WorkError, match=r"cannot download http.*: Connection refused; run again") as caught:
        download(url, tmp_path / "file.tar.gz", md5=MD5, console=quiet())
    assert "\n" not in str(caught.value)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(WorkError, match="cannot download"):
        download("http://127.0.0.1:9/x", tmp_path / "file" / "x", md5=MD5, console=quiet())


def test_given_then_variable_then_cache() -> None:
    environment = {"ELFNET_DATA": "/named", "XDG_CACHE_HOME": "/cache"}
    expected = [Path("/given"), Path("/named"), Path("/cache/elfnet")]
    assert data_places(Path("/given"), environment) == expected
    assert data_places(None, environment) == expected[1:]
    assert data_places(None, {"XDG_CACHE_HOME": "/cache"}) == expected[2:]


def test_a_place_is_searched_once() -> None:
    assert data_places(Path("/a"), {"ELFNET_DATA": "/a", "XDG_CACHE_HOME": "/c"}) == [Path("/a"), Path("/c/elfnet")]


def test_without_variables_the_cache_is_in_the_home_directory() -> None:
    assert cache_directory({}) == Path.home() / ".cache" / "elfnet"


def test_the_home_directory_may_be_abbreviated() -> None:
    assert data_places(Path("~/data"), {})[0] == Path.home() / "data"
