"""Decides: ints, memoryviews and NumPy columns in, values out. No kernel, clock, pid or environment."""

from __future__ import annotations
