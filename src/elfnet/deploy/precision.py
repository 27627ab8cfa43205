"""Precisions in which a network can be computed."""

from typing import Literal, get_args

Precision = Literal["float32", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
