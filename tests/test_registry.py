"""Registries are tiny, closed and loud."""

import pytest

from elfnet.errors import RequestError
from elfnet.registry import Registry, unknown_name


@pytest.fixture
def colours() -> Registry[int]:
    registry: Registry[int] = Registry("colour")
    registry.register("red")(1)
    registry.register("green")(2)
    return registry


def test_what_was_registered_is_found(colours: Registry[int]) -> None:
    assert colours["red"] == 1
    assert list(colours) == colours.names() == ["green", "red"]


def test_register_is_a_decorator_that_changes_nothing() -> None:
    registry: Registry[object] = Registry("function")

    def function() -> None: ...

    assert registry.register("f")(function) is function


def test_a_duplicate_raises_and_keeps_the_first(colours: Registry[int]) -> None:
    with pytest.raises(ValueError, match="colour 'red' is registered twice"):
        colours.register("red")(3)
    assert colours["red"] == 1


def test_an_unknown_name_lists_the_choices_and_the_nearest(colours: Registry[int]) -> None:
    with pytest.raises(RequestError) as caught:
        colours["gren"]
    assert str(caught.value) == "unknown colour 'gren'; did you mean 'green'? choose from: green, red"


def test_a_name_unlike_any_gets_no_suggestion() -> None:
    assert str(unknown_name("colour", "zzz", ["green"])) == "unknown colour 'zzz'; choose from: green"
