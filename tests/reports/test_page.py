"""docs/reports.md has one row for each report; its rows and the tests that are marked with a report name each other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "reports.md"
LAST_REPORT = 146
# Numbers that were never given.
GAPS = {
    7, 8, 9, 13, 16, 17, 23, 24, 26, 33, 35, 36, 37, 47, 54, 56, 62, 65, 66, 67, 73, 76, 77, 80, 81, 91, 92, 94, 96, 97,
    100, 105, 110, 113, 117, 119, 120, 124, 129, 133, 137, 141, 144, 145,
}  # fmt: skip
REPORTS = [f"R{number:03}" for number in range(1, LAST_REPORT + 1) if number not in GAPS]


def rows() -> list[list[str]]:
    """The cells of each row: report, symptom, what happens here, tests or why there are none."""
    lines = re.findall(r"^\| (R\d+ .*) \|$", PAGE.read_text(), re.MULTILINE)
    return [[cell.strip() for cell in line.split(" | ")] for line in lines]


def named(cell: str) -> set[str]:
    """The tests that a cell names."""
    return set(re.findall(r"`(\w+/\w+\.py::\w+)`", cell))


def reports_of(function: ast.FunctionDef) -> list[str]:
    """The arguments of its report mark."""
    return [
        argument.value
        for mark in function.decorator_list
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.report"
        for argument in mark.args
        if isinstance(argument, ast.Constant)
    ]


def marked() -> dict[str, set[str]]:
    """The tests with a report mark, by report."""
    found: dict[str, set[str]] = {}
    for path in TESTS.glob("*/test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for report in reports_of(node):
                    found.setdefault(report, set()).add(f"{path.relative_to(TESTS)}::{node.name}")
    return found


def test_each_report_has_one_row_of_four_cells_that_say_something() -> None:
    assert len(REPORTS) == 102
    assert [row[0] for row in rows()] == REPORTS
    assert [row[0] for row in rows() if len(row) != 4 or not all(row)] == []


def test_rows_and_marks_name_each_other() -> None:
    tests = marked()
    assert set(tests) <= set(REPORTS)
    for report, _, _, cell in rows():
        assert named(cell) == tests.get(report, set()), report


def test_a_row_without_a_test_says_why() -> None:
    for report, _, _, cell in rows():
        assert named(cell) or cell.startswith(("Can't happen: ", "Not ours: ")), report
