"""What a consumer sees of an array, in a module of its own: workers of other libraries import it too."""

from __future__ import annotations

from typing import Any


def look(array: Any, everything: bool) -> tuple[float, float]:
    """The first and the last element; or the mean, which is exact as all are equal and their number a power of 2."""
    return float(array[0]), float(array.mean() if everything else array[-1])
