"""Numbers and names as text. A missing value is a dash, which differs from 0."""

import re

DASH = "–"
MINUS = "−"

# Characters that HTML and SVG do not allow, or that reorder the text around them.
_NOT_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffe\uffff]|[\ud800-\udfff]")


def percent(fraction: float | None) -> str:
    """Format a fraction in percent without the sign: 0.926 -> "92.6"."""
    return DASH if fraction is None else f"{100 * fraction:.1f}"


def small_percent(fraction: float) -> str:
    """Format a fraction in percent with two significant digits: 0.34 -> "34", 0.0064 -> "0.64"."""
    if 0 < fraction < 1e-4:
        return "< 0.01"
    return f"{100 * fraction:.0f}" if fraction >= 0.1 else f"{100 * fraction:.2g}"


def cost(relative: float | None) -> str:
    """Format a cost relative to the plain backbone: 0.9073 -> "0.907"."""
    return DASH if relative is None else f"{relative:.3f}"


def milliseconds(value: float | None) -> str:
    """Format a time in milliseconds with three digits: 1.2345 -> "1.23"."""
    return DASH if value is None else f"{value:#.3g}".rstrip(".") if value < 100 else f"{value:.0f}"


def number(value: float | None, digits: int = 3) -> str:
    """Format a number with a fixed number of decimal places."""
    return DASH if value is None else f"{value:.{digits}f}"


def signed_points(fraction: float) -> str:
    """Format a difference of accuracies in percentage points with its sign: 0.0466 -> "+4.7"."""
    shown = f"{100 * abs(fraction):.1f}"
    if float(shown) == 0.0:
        return "0.0"
    return ("+" if fraction > 0 else MINUS) + shown


def count(value: int) -> str:
    """Format a count with separators: 12406 -> "12,406"."""
    return f"{value:,}"


def multiply_adds(value: float) -> str:
    """Format a number of multiply-adds with a unit prefix: 11944576 -> "11.9 M"."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f}"


def duration(seconds: float) -> str:
    """Format a wall time in seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def versus(relative: float, reference: str) -> str:
    """Describe a relative cost: 0.907 -> "9 % less than full depth"."""
    change = round(100 * (relative - 1))
    if change == 0:
        return f"the same as {reference}"
    return f"{abs(change)} % {'less' if change < 0 else 'more'} than {reference}"


def readable(value: object) -> str:
    """Return a value as text, with control characters replaced by U+FFFD."""
    return _NOT_TEXT.sub("\ufffd", str(value))


def nonbreaking(text: str) -> str:
    """Keep numbers on one line with their units and names: "92.6 %", "n = 500"."""
    return text.replace(" %", "\u00a0%").replace("n = ", "n\u00a0=\u00a0")
