"""The README's example does what the README says it does, and docs/one-tensor.md what it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"


@pytest.mark.slow
def test_the_example_of_the_readme_prints_what_the_readme_says(run_script: Any, start_method: str) -> None:
    text = README.read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (printed,) = re.findall(r"it prints `(.*?)`", text)
    assert run_script(code, start_method=start_method).strip() == printed


def test_the_readme_links_to_files_that_exist() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README.read_text()):
        assert (ROOT / target).exists(), target


def test_the_tour_names_files_that_exist() -> None:
    names = re.findall(r"`((?:\w+/)*\w+\.py)`", (ROOT / "docs" / "one-tensor.md").read_text())
    assert len(names) > 10
    for name in names:
        assert (ROOT / name).exists() or (ROOT / "allocator" / name).exists(), name


@pytest.mark.slow
def test_the_tour_holds_at_every_step(run_command: Any, tmp_path: Path) -> None:
    tour = Path(__file__).with_name("one_tensor.py")
    assert run_command([sys.executable, str(tour)], cwd=tmp_path, timeout=60) == "as written\n"


def test_the_tour_counts_its_steps_as_its_test_does() -> None:
    steps = re.findall(r"^(\d+)\. ", (ROOT / "docs" / "one-tensor.md").read_text(), re.MULTILINE)
    assert steps == [str(number) for number in range(1, len(steps) + 1)]
    for comment in re.findall(r"  # (.*)", Path(__file__).with_name("one_tensor.py").read_text()):
        assert all(int(number) <= len(steps) for number in re.findall(r"\d+", comment))
