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


def tables_of(text: str) -> list[list[list[str]]]:
    """The cells of the tables in a text, without the rules under their heads."""
    found: list[list[list[str]]] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("|"):
            if not inside:
                found.append([])
            found[-1].append([cell.strip() for cell in line.strip().strip("|").split("|")])
        inside = line.startswith("|")
    for table in found:
        assert set("".join(table.pop(1))) == {"-"}
    return found


def check_rows(table: list[list[str]], rows: list[Any]) -> None:
    """The table has these rows and a column for every peer, with a number in each cell and a ratio beside it."""
    from benchmarks.__main__ import PEERS
    from benchmarks.optional import installed

    peers = [*PEERS, *installed()[0]]
    head, *body = table
    assert head == ["work", "size", *(peer.name for peer in peers)]
    assert [line[:2] for line in body] == [[row.name, row.size] for row in rows]
    number = r"[\d.,e+-]+"
    for row, line in zip(rows, body, strict=True):
        for peer, cell in zip(peers, line[2:], strict=True):
            expected = number if "GB/s" in row.name else f"{number} / {number}"
            expected += "" if peer.name == "floor" else rf" \(x{number}\)"
            able = peer.sends_again or not row.again
            assert re.fullmatch(expected if able else "-", cell), f"{line[0]}, {peer.name}: {cell!r}"


@pytest.mark.slow
def test_a_quick_run_measures_all_and_writes_the_pages_and_pictures(
    run_benchmarks: Callable[..., str], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.__main__ import chosen_rows
    from benchmarks.peers import Floor, Shmtensor
    from benchmarks.report import PICTURES

    pages = ("README.md", "docs/benchmarks.md", "docs/scaling.md")
    (tmp_path / "docs").mkdir()
    for page in pages:
        (tmp_path / page).write_text((ROOT / page).read_text())
    text = run_benchmarks("--quick", "--write", str(tmp_path))
    rows, goals, rates, living, views = tables_of(text)
    check_rows(rows, chosen_rows("", quick=True))
    assert re.search(r"round trip of one byte [\d.e+]+ us, np.copyto [\d.e+]+ GB/s, warm fill [\d.e+]+ GB/s", text)
    assert {line[3] for line in goals[1:]} <= {"yes", "no"}
    assert len(goals) > 15
    for name in (Shmtensor.name, Floor.name):
        (ops,) = [line for line in rates if line[0] == name]
        assert all(float(cell.replace(",", "")) > 0 for cell in ops[1:])
    assert [line[-3:] for line in living if line[0] == Shmtensor.name] == [["3", "2", ""]]
    assert [len(line) for line in views] == [8, 8, 8]
    assert re.search(r"enters the lock [\d.]+ times for it, for [\d.]+ us", text)
    for page in pages:
        written = (tmp_path / page).read_text()
        assert len(tables_of(written)) >= 1
        assert written.startswith((ROOT / page).read_text().split("<!--")[0])
    for picture in PICTURES:
        assert (tmp_path / "docs" / "benchmarks" / f"{picture}.png").read_bytes().startswith(b"\x89PNG")


def test_only_and_quick_choose_the_works_and_how_often_they_are_done() -> None:
    from benchmarks.__main__ import QUICK_BYTES, chosen_rows

    assert {"pipeline" in row.name for row in chosen_rows("pipeline", quick=False)} == {True}
    slow, quick = (sum(row.times for row in chosen_rows("", quick=quick)) for quick in (False, True))
    assert quick < slow / 10
    assert max(row.nbytes for row in chosen_rows("", quick=True)) <= QUICK_BYTES


def test_a_work_that_is_not_there_is_refused_by_name() -> None:
    from benchmarks.__main__ import chosen_rows

    with pytest.raises(SystemExit, match=r"no work is called 'walk'; there are allocate \+ free"):
        chosen_rows("walk", quick=False)


def test_a_consumer_that_read_other_bytes_ends_the_run() -> None:
    from benchmarks.link import Link

    link: Any = SimpleNamespace(peer=SimpleNamespace(name="liar"))
    Link.check(link, (7, 7), 7)
    for seen in ((7, 6), (6, 7), (6, 6)):
        with pytest.raises(AssertionError, match="liar: wrote 7, the consumer read"):
            Link.check(link, seen, 7)


@pytest.mark.parametrize(("everything", "wrong"), [(False, 0), (False, -1), (True, 0), (True, -1), (True, 1 << 20)])
def test_a_look_finds_one_wrong_element(everything: bool, wrong: int) -> None:
    import numpy as np

    from benchmarks.looking import look

    array = np.full(1 << 21, 250, np.float32)
    assert look(array, everything) == (250, 250)
    array[wrong] = 0
    assert look(array, everything) != (250, 250)


def test_a_cell_has_median_percentile_and_the_ratio_paired_by_round() -> None:
    from benchmarks.table import cell
    from benchmarks.works import ROWS

    # The machine got ten times slower in the second and third round, for both: the ratio stays 2.
    mine = [[2000.0, 2000.0, 9000.0], [20000.0], [20000.0]]
    floor = [[1000.0, 1000.0, 1000.0], [10000.0], [10000.0]]
    assert cell(ROWS[0], mine, floor) == "9 / 20 (x2.00)"
    assert cell(ROWS[0], floor, floor) == "1 / 10"


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


def test_a_goal_says_whether_it_is_met() -> None:
    from benchmarks.goals import Goal

    assert Goal("most", 1.5, 1.5).line() == ["most", "≤ 1.5", "1.5", "yes"]
    assert Goal("most", 1.5, 1.6).line()[3] == "no"
    assert Goal("least", 0.5, 0.4, "GB/s", at_least=True).line() == ["least", "≥ 0.5 GB/s", "0.4 GB/s", "no"]


def test_a_page_is_written_between_its_marks_only(tmp_path: Path) -> None:
    from benchmarks.report import splice

    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- written by: python -m benchmarks --write -->\nold\n<!-- end of what is written -->\nafter\n"
    )
    splice(page, "new")
    splice(page, "newer")
    text = page.read_text()
    assert (text.startswith("before\n"), text.endswith("\nafter\n")) == (True, True)
    assert [word in text for word in ("old", "new\n", "newer")] == [False, False, True]


def test_the_benchmarks_stay_small() -> None:
    files = {file.name: len(file.read_text().splitlines()) for file in (ROOT / "benchmarks").glob("*.py")}
    assert max(files.values()) < 260, files
    assert sum(files.values()) < 1600
