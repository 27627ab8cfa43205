"""The order in which data directories are searched."""

from pathlib import Path

from elfnet.data.sources.download import cache_directory, data_places


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
