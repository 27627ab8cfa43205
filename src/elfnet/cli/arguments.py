"""Argument parsing of all verbs: a parser with one-line errors, argument types, and recipe settings as flags.

Every field of the recipe schema is a flag (`--train.epochs 40`). Its help is the description of the field, and the
schema parses its value, so that flags, recipe files and the Python API accept the same values.
"""

import argparse
import math
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args, get_origin

from pydantic import BaseModel

from elfnet.errors import RequestError
from elfnet.recipe.renamed import new_name, no_setting, setting_by_meaning
from elfnet.recipe.schema import Recipe

if TYPE_CHECKING:
    from elfnet.calibrate.measured_cost import TimeBudget


class Parser(argparse.ArgumentParser):
    """An argument parser that ends its help with an example and raises errors as `RequestError`.

    Args:
        verb: the verb, such as `train`.
        description: text above the options in the help.
        usage: arguments and main flags, without the program name and the verb.
        example: a complete command.
    """

    def __init__(self, verb: str, description: str, *, usage: str, example: str) -> None:
        super().__init__(
            prog=f"elfnet {verb}",
            # Given explicitly: the usage that argparse generates would list a flag per recipe field.
            usage=f"elfnet {verb} {usage}",
            description=description,
            epilog=f"example: {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        raise RequestError(f"{message}; see '{self.prog} --help'")

    def parse_strictly(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse the arguments of the verb.

        Raises:
            RequestError: an argument is invalid or unknown; for an unknown flag the message suggests a similar one.
        """
        found, unknown = self.parse_known_args(words)
        if unknown:
            flag = unknown[0].partition("=")[0]
            if (now := new_name(flag.removeprefix("--"))) is not None:
                raise RequestError(f"{flag} is now called --{now}; use the new name")
            raise RequestError(f"unknown argument {flag!r}; {self._hint(flag)}")
        return found

    def _hint(self, flag: str) -> str:
        """What an unknown flag may mean: a setting without its section, one with another name, or a similar flag."""
        name = flag.removeprefix("--")
        known = [option for action in self._actions for option in action.option_strings]
        if "--data.root" in known and Path(flag).is_dir():
            return f"for images in a folder, give --data.root {flag}"
        word = name.rpartition(".")[2].replace("-", "_")
        # Verbs without settings have none of these. Alone, the name of a setting may have another meaning.
        text = no_setting(name) if "--train.epochs" in known else None
        if text is not None and "." not in name:
            return text
        if same := [option for option in known if "." in option and option.rpartition(".")[2] == word]:
            return f"did you mean {' or '.join(same)}?"
        if (meant := setting_by_meaning(name)) is not None and f"--{meant}" in known:
            return f"it is called --{meant}"
        if meant is None and text is not None:
            return text
        near = get_close_matches(flag, known, n=1, cutoff=0.6)
        return f"did you mean {near[0]}?" if near else f"see '{self.prog} --help'"

    def refuse_name(self, name: str | None) -> None:
        """Refuse a name after `ls`, which lists everything."""
        if name is not None:
            self.error(f"ls lists everything and takes no name, got {name!r}")

    def add_json_flag(self) -> None:
        self.add_argument("--json", action="store_true", help="print results as JSON")

    def add_device_flag(self) -> None:
        self.add_argument("--device", default="auto", help="auto, cpu, cuda or mps (default: auto)")


def positive(text: str) -> float:
    """Argument type: a finite number above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return value


def numbers(text: str) -> tuple[float, ...]:
    """Argument type: numbers separated by commas."""
    return tuple(float(part) for part in text.split(",") if part.strip())


def budget(text: str) -> "float | TimeBudget":
    """Argument type: a mean cost such as 0.6, or a time per image such as 5ms."""
    from elfnet.calibrate.measured_cost import parse_budget

    try:
        return parse_budget(text)
    except RequestError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def budgets(text: str) -> "tuple[float | TimeBudget, ...]":
    """Argument type: budgets separated by commas."""
    found = tuple(budget(part) for part in text.split(",") if part.strip())
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} has no budget; give one or more, such as 0.5,5ms")
    if twice := [str(one) for position, one in enumerate(found) if one in found[:position]]:
        raise argparse.ArgumentTypeError(f"budget {twice[0]} is given twice; give it once")
    return found


def add_recipe_flags(parser: argparse.ArgumentParser) -> None:
    """Add one flag per recipe field, grouped by section. The flags have no defaults; those are in the recipe."""
    for section in Recipe.model_fields:
        kind = _section_model(section)
        group = parser.add_argument_group(section, description=(kind.__doc__ or "").splitlines()[0])
        for name, info in kind.model_fields.items():
            # argparse expands % in help texts.
            text = (info.description or "").replace("%", "%%")
            choices = get_args(info.annotation) if get_origin(info.annotation) is Literal else ()
            metavar = "{" + ",".join(map(str, choices)) + "}" if choices else "VALUE"
            group.add_argument(f"--{section}.{name}", dest=f"{section}.{name}", metavar=metavar, help=text)


def recipe_overrides(found: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the recipe flags that were given, by dotted name; lists are split at commas."""
    overrides: dict[str, Any] = {}
    for dotted, text in vars(found).items():
        section, _, name = dotted.partition(".")
        if not name or text is None:
            continue
        is_list = get_origin(_section_model(section).model_fields[name].annotation) is tuple
        overrides[dotted] = tuple(part for part in text.split(",") if part) if is_list else text
    return overrides


def _section_model(name: str) -> type[BaseModel]:
    kind = Recipe.model_fields[name].annotation
    assert isinstance(kind, type)
    assert issubclass(kind, BaseModel)
    return kind
