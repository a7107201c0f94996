"""Each example runs as a user would run it, on every start method, and does what it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the examples need the extra 'examples'")
image = pytest.importorskip("PIL.Image", reason="the examples need the extra 'examples'")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(path.name for path in EXAMPLES.glob("*.py"))
MOST_LINES = 120


@pytest.fixture
def run_example(run_command: Any, tmp_path: Path) -> Any:
    """Runs an example with these options in an empty folder; gives its stdout."""

    def run(name: str, *options: object) -> str:
        command = [sys.executable, str(EXAMPLES / name), *map(str, options)]
        text: str = run_command(command, cwd=tmp_path, timeout=100)
        return text

    return run


def numbers(pattern: str, text: str) -> list[float]:
    """What the groups of a pattern match in a text, as numbers; the pattern must occur."""
    found = re.search(pattern, text)
    assert found, f"{pattern!r} is not in:\n{text}"
    return [float(group.replace(",", "")) for group in found.groups()]


def test_the_examples_are_there() -> None:
    assert {"chaos.py", "image_pipeline.py", "stress.py", "worker_pool.py"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_short_enough_to_read(name: str) -> None:
    assert len((EXAMPLES / name).read_text().splitlines()) < MOST_LINES


@pytest.mark.parametrize("name", NAMES)
def test_an_example_explains_itself(name: str, run_example: Any) -> None:
    text = run_example(name, "--help")
    assert "--workers" in text
    assert "--start-method" in text


@pytest.mark.slow
def test_image_pipeline_sends_headers_and_makes_a_contact_sheet(
    run_example: Any, start_method: str, tmp_path: Path
) -> None:
    options = ("--workers", 2, "--batches", 5, "--batch-size", 6, "--size", 96, "--output", "sheet.png")
    text = run_example("image_pipeline.py", "--start-method", start_method, *options)
    rate, gigabytes = numbers(r"([\d,]+) images/s, ([\d.]+) GB/s", text)
    assert text.endswith("the first batch is drawn in sheet.png\n")
    message, batch = numbers(r"([\d,]+) bytes per batch crossed the queue, for ([\d,]+)", text)
    assert rate > 0
    assert gigabytes >= 0
    assert 50 < message < 400
    assert batch == 6 * 3 * 96 * 96 * 4
    sheet = np.asarray(image.open(tmp_path / "sheet.png"))
    assert sheet.shape[2] == 3
    # Photographs: all six images are there, and none is one colour.
    for index in range(6):
        assert sheet[:96, index * 96 : (index + 1) * 96].std() > 10


@pytest.mark.slow
def test_image_pipeline_gives_the_same_batches_whoever_makes_them(run_example: Any) -> None:
    options = ("--start-method", "fork", "--batches", 4, "--batch-size", 3, "--size", 64, "--seed", 7)
    texts = [run_example("image_pipeline.py", "--workers", workers, *options) for workers in (1, 2)]
    first, second = (re.search(r"channel means .*", text) for text in texts)
    assert first
    assert second
    assert first[0] == second[0]


@pytest.mark.slow
def test_worker_pool_learns_and_each_worker_sees_the_others(run_example: Any, start_method: str) -> None:
    text = run_example("worker_pool.py", "--start-method", start_method, "--workers", 3)
    (before,) = numbers(r"before: ([\d.]+)", text)
    (after,) = numbers(r"after: +([\d.]+)", text)
    assert before < 0.3
    assert after >= 0.93
    noticed = [int(count.replace(",", "")) for count in re.findall(r"before ([\d,]+) of its steps", text)]
    assert len(noticed) == 3
    assert min(noticed) > 0


@pytest.mark.slow
def test_worker_pool_alone_sees_no_others(run_example: Any) -> None:
    text = run_example("worker_pool.py", "--start-method", "fork", "--workers", 1)
    (after,) = numbers(r"after: +([\d.]+)", text)
    assert after >= 0.93
    assert re.findall(r"before ([\d,]+) of its steps", text) == ["0"]


@pytest.mark.slow
def test_stress_leaves_nothing(run_example: Any, start_method: str) -> None:
    options = ("--workers", 3, "--operations", 500, "--limit-mib", 48, "--seed", len(start_method))
    text = run_example("stress.py", "--start-method", start_method, *options)
    (rate,) = numbers(r"([\d,]+) operations/s", text)
    (peak,) = numbers(r"peak use (\d+) MiB", text)
    assert rate > 0
    assert 0 < peak <= 48
    assert "final use 0 bytes, 0 records, 0 messages in flight" in text
    assert "check() passed" in text


@pytest.mark.slow
def test_chaos_leaves_nothing(run_example: Any, start_method: str) -> None:
    options = ("--workers", 3, "--kills", 60 if start_method == "fork" else 20, "--limit-mib", 48)
    text = run_example("chaos.py", "--start-method", start_method, *options)
    assert re.search("[26]3 workers were killed", text)
    assert "final use 0 bytes, 0 records, 0 messages in flight" in text
    assert "check() passed" in text
