"""Parse thresholds as users write them: a probability, or a multiple of 1/C.

1/C is the confidence of a uniform guess among C classes.
"""

import math
import re

from elfnet.errors import RequestError

_NUMBER = r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?"
_THRESHOLD = re.compile(rf"\s*(?P<number>{_NUMBER})\s*(?P<over_classes>/\s*[Cc])?\s*")


def parse_threshold(text: str | float, *, classes: int) -> float:
    """Convert a threshold to a probability in [0, 1]: at 0 every example exits, at 1 none does.

    Args:
        text: a number (`0.9`, `"0.9"`) or a multiple of 1/C (`"2/C"`).
        classes: the number of classes C.

    Raises:
        RequestError: the text is not a threshold, or the value is outside [0, 1].

    Example:
        >>> parse_threshold("1.5/C", classes=10)
        0.15
    """
    hint = "give a probability from 0 to 1 such as 0.9, or a multiple of 1/C such as '1.5/C'"
    if isinstance(text, str):
        match = _THRESHOLD.fullmatch(text)
        if match is None:
            raise RequestError(f"threshold {text!r} is neither a number nor a multiple of 1/C; {hint}")
        value = float(match["number"])
        if match["over_classes"]:
            value /= classes
    else:
        value = float(text)
    if not math.isfinite(value) or not 0.0 <= value <= 1.0:
        meaning = f" (= {value:g} for {classes} classes)" if isinstance(text, str) and "/" in text else ""
        raise RequestError(f"threshold {text!r}{meaning} is not between 0 and 1; {hint}")
    return value
