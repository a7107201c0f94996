"""The benchmarks run, fill their whole table, count what they say they count, and refuse wrong answers."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "benchmarks").is_dir(), reason="benchmarks are part of the checkout only")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkout is on the path, as it is for ``python -m benchmarks``."""
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def run_benchmarks(run_command: Any) -> Callable[..., str]:
    """Runs the command with these options; gives its stdout, and asserts that stderr stays empty."""

    def run(*options: str, returncode: int = 0) -> str:
        command = [sys.executable, "-m", "benchmarks", *options]
        text: str = run_command(command, cwd=ROOT, timeout=100, returncode=returncode)
        return text

    return run


def cells_of(text: str) -> list[list[str]]:
    """The cells of the one table in a text, without the rule under its head."""
    lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines() if "|" in line]
    assert set("".join(lines[1])) == {"-"}
    return [lines[0], *lines[2:]]


def check_table(text: str, rows: list[Any]) -> None:
    """The table has these rows and a column for every peer, with a number in each cell and a ratio beside it."""
    from benchmarks.__main__ import PEERS

    head, *body = cells_of(text)
    assert head == ["work", "size", *(peer.name for peer in PEERS)]
    assert [line[0] for line in body] == [row.name for row in rows]
    for line in body:
        assert re.fullmatch(r"\d+ [KM]iB", line[1])
        for name, cell in zip(head[2:], line[2:], strict=True):
            ratio = "" if name == "floor" else r" \(x[\d,]+\.\d\d\)"
            assert re.fullmatch(r"[\d.,e+-]+" + ratio, cell), f"{line[0]}, {name}: {cell!r}"
    assert re.search(r"round trip of one byte [\d.e+]+ us, np.copyto [\d.e+]+ GB/s, warm fill [\d.e+]+ GB/s", text)


@pytest.mark.slow
def test_a_quick_run_prints_every_row_for_every_peer(run_benchmarks: Callable[..., str]) -> None:
    from benchmarks.works import ROWS

    check_table(run_benchmarks("--quick"), ROWS)


@pytest.mark.slow
def test_only_and_pin_choose_the_works_and_the_cpu(run_benchmarks: Callable[..., str]) -> None:
    from benchmarks.works import ROWS

    text = run_benchmarks("--quick", "--pin", "--only", "pipeline")
    check_table(text, [row for row in ROWS if "pipeline" in row.name])
    assert "both ends on one CPU," in text


def test_a_work_that_is_not_there_is_refused_by_name() -> None:
    from benchmarks.__main__ import chosen_rows

    with pytest.raises(SystemExit, match=r"no work is called 'walk'; there are allocate \+ free"):
        chosen_rows("walk", quick=False)


def test_a_consumer_that_read_other_bytes_ends_the_run() -> None:
    from benchmarks.link import ACK, Link

    link: Any = SimpleNamespace(peer=SimpleNamespace(name="liar"))
    Link.check(link, ACK.pack(7, 7), 7)
    for seen in ((7, 6), (6, 7), (6, 6)):
        with pytest.raises(AssertionError, match="liar: wrote 7, the consumer read"):
            Link.check(link, ACK.pack(*seen), 7)


@pytest.mark.parametrize(("everything", "wrong"), [(False, 0), (False, -1), (True, 0), (True, -1), (True, 1 << 20)])
def test_a_look_finds_one_wrong_element(everything: bool, wrong: int) -> None:
    import numpy as np

    from benchmarks.link import look

    array = np.full(1 << 21, 250, np.float32)
    assert look(array, everything) == (250, 250)
    array[wrong] = 0
    assert look(array, everything) != (250, 250)


def test_a_cell_has_the_median_and_the_ratio_paired_by_round() -> None:
    from benchmarks.table import cell
    from benchmarks.works import ROWS

    # The machine got ten times slower in the second and third round, for both: the ratio stays 2.
    mine = [[2000.0, 2000.0, 9000.0], [20000.0], [20000.0]]
    floor = [[1000.0, 1000.0, 1000.0], [10000.0], [10000.0]]
    assert cell(ROWS[0], mine, floor) == "9 (x2.00)"
    assert cell(ROWS[0], floor, floor) == "1"


def test_the_pipeline_is_counted_in_gigabytes_per_second() -> None:
    from benchmarks.table import cell
    from benchmarks.works import ROWS

    batch = ROWS[-1].nbytes
    samples = [[batch / 4]]  # 4 bytes per nanosecond
    assert cell(ROWS[-1], samples, samples) == "4"


def test_the_floor_gives_freed_bytes_again_and_living_ones_never() -> None:
    from benchmarks.peers import Floor

    floor = Floor(1 << 20)
    try:
        first, second = floor.make(4096), floor.make(4096)
        assert first != second
        floor.drop(first, made=False)
        assert floor.make(4096) not in (first, second)
        floor.drop(first, made=True)
        assert floor.make(4096) == first
    finally:
        floor.close()


def test_the_benchmarks_stay_small() -> None:
    lines = [line for file in (ROOT / "benchmarks").glob("*.py") for line in file.read_text().splitlines()]
    assert len(lines) < 450
