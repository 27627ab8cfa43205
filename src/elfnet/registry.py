"""Registries of named objects: a duplicate raises, and an unknown name lists the choices and the nearest one."""

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Generic, TypeVar

from elfnet.errors import RequestError

T = TypeVar("T")


def unknown_name(kind: str, name: str, choices: list[str], *, instead: str | None = None) -> RequestError:
    """The error for an unknown name, with the nearest choice and all choices.

    Args:
        instead: text in place of the list of choices, if that is too long for one line.
    """
    near = get_close_matches(name, choices, n=1, cutoff=0.5 if instead is None else 0.6)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    return RequestError(f"unknown {kind} {name!r}{hint} {instead or 'choose from: ' + ', '.join(choices)}")


class Registry(Generic[T]):
    """A mapping from names to objects of one kind, such as losses.

    Args:
        kind: what the names stand for, for error messages.

    Example:
        >>> LOSSES: Registry[int] = Registry("loss")
        >>> LOSSES.register("ce")(1)
        1
        >>> LOSSES["ce"]
        1
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """A decorator that registers its argument under `name`."""

        def add(entry: T) -> T:
            if name in self._entries:
                raise ValueError(f"{self._kind} {name!r} is registered twice")
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> T:
        try:
            return self._entries[name]
        except KeyError:
            raise unknown_name(self._kind, name, self.names()) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self) -> list[str]:
        """All registered names, sorted."""
        return sorted(self._entries)
