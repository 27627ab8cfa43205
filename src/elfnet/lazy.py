"""Lazy public names of a package: a name is imported at its first use, so that importing the package is cheap."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Make the `__getattr__` function of a package.

    Args:
        package: dotted name of the package, for error messages.
        modules: by public name, the module that defines it.
    """

    def get(name: str) -> Any:
        if name in modules:
            return getattr(import_module(modules[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get
