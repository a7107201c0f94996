"""Bridges to other libraries, each imported inside the call that needs it."""

from __future__ import annotations
