"""Lazy public names of a package: a name is imported at its first use, so that importing the package is cheap."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from elfnet.extras import EXTRA_OF_PACKAGE, missing_package


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Make the `__getattr__` function of a package.

    Args:
        package: dotted name of the package, for error messages.
        modules: by public name, the module that defines it.

    Returns:
        The function. If an optional package is not installed, its error names the command that installs it.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(modules[name])
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in EXTRA_OF_PACKAGE:
                raise
            raise ModuleNotFoundError(missing_package(f"{package}.{name}", missing), name=missing) from None
        return getattr(module, name)

    return get
