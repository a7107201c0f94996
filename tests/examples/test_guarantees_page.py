"""docs/guarantees.md names tests: they exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = [line for line in (ROOT / "docs" / "guarantees.md").read_text().splitlines() if line.startswith("| ")]
PROMISES = [row for row in ROWS if not row.startswith("| When ")]


def functions_in(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_promise_names_tests_that_exist() -> None:
    assert len(PROMISES) > 15
    for row in PROMISES:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row)
        assert named, row
        for path, name in named:
            assert name in functions_in(ROOT / path), f"{path}::{name}"
