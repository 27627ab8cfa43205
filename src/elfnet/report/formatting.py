"""Numbers and names as text. A missing value is a dash, which differs from 0."""

DASH = "–"
MINUS = "−"


def percent(fraction: float | None) -> str:
    """0.926 -> "92.6"; the unit stands in the heading."""
    return DASH if fraction is None else f"{100 * fraction:.1f}"


def small_percent(fraction: float) -> str:
    """0.34 -> "34", 0.0064 -> "0.64"; what is hardly anything is said to be."""
    if 0 < fraction < 1e-4:
        return "< 0.01"
    return f"{100 * fraction:.0f}" if fraction >= 0.1 else f"{100 * fraction:.2g}"


def cost(relative: float | None) -> str:
    """A cost relative to the plain backbone."""
    return DASH if relative is None else f"{relative:.3f}"


def number(value: float | None, digits: int = 3) -> str:
    return DASH if value is None else f"{value:.{digits}f}"


def signed_points(fraction: float) -> str:
    """A difference of accuracies in percentage points, with its sign."""
    shown = f"{100 * abs(fraction):.1f}"
    if float(shown) == 0.0:
        return "0.0"
    return ("+" if fraction > 0 else MINUS) + shown


def count(value: int) -> str:
    """12406 -> "12,406"."""
    return f"{value:,}"


def multiply_adds(value: float) -> str:
    """11944576 -> "11.9 M"."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f}"


def duration(seconds: float) -> str:
    """Wall time in the unit that a person would use."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def versus(relative: float, what: str) -> str:
    """A relative cost in words: 0.907 -> "9 % less than ..."."""
    change = round(100 * (relative - 1))
    if change == 0:
        return f"the same as {what}"
    return f"{abs(change)} % {'less' if change < 0 else 'more'} than {what}"
