"""The only files that make system calls: segments, locks, and facts about the host."""

from __future__ import annotations
