"""HTML as values: what is not marked up is text, and text is escaped when it enters an element.

Class names, run names and commands come from users' files, so there is no way to put a plain string into the page
unescaped by forgetting something; `trusted` is for markup that this package has made itself.
"""

import html
import re

# Characters that HTML and SVG do not admit, or that would reorder the text around them.
_NOT_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffe\uffff]|[\ud800-\udfff]")
_VOID = {"meta", "link", "br", "hr", "col", "input"}


class Markup(str):
    """A string that is HTML already."""

    __slots__ = ()


def readable(value: object) -> str:
    """Text without control characters, which a replacement character stands for."""
    return _NOT_TEXT.sub("\ufffd", str(value))


def escaped(value: object) -> Markup:
    """Markup as it is; anything else as text."""
    return value if isinstance(value, Markup) else Markup(html.escape(readable(value), quote=True))


def trusted(content: str) -> Markup:
    """Content that is known to be markup."""
    return Markup(content)


def joined(*parts: object, by: str = "") -> Markup:
    return Markup(by.join(escaped(part) for part in parts))


def element(tag: str, *children: object, **attributes: str | int | float | bool | None) -> Markup:
    """One element.

    Args:
        children: markup, or values that become text.
        attributes: `class_` stands for `class`, `data_value` for `data-value`; None and False are left out.

    Example:
        >>> element("p", "1 < 2", class_="note")
        '<p class="note">1 &lt; 2</p>'
    """
    written = "".join(
        f" {name.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escaped(value)}"')
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    if tag in _VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{joined(*children)}</{tag}>")


def unbroken(text: str) -> str:
    """Text whose numbers keep their units and names at the end of a line: "92.6 %", "n = 500"."""
    return text.replace(" %", "\u00a0%").replace("n = ", "n\u00a0=\u00a0")
