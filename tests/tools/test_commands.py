"""The commands, as processes, beside processes that use the pools they look at."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tools.shell import ROOT, command, environment

from allocator.tools.app import COMMANDS, age, commands, size

LOOKS = ("ls", "stats", "clients", "tensors", "tickets", "names", "check")
NAME = f"cli{os.getpid()}"
TO_NOWHERE = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
NOT_OURS = f"pool {NAME!r} was never finished, or is of another version of this library"


def read_start(path: str) -> bytes:
    """Header, clients and spans of a control segment."""
    with open(path, "rb") as file:
        return file.read(1 << 20)


@pytest.fixture
def used(peer: Callable[[], Any]) -> Any:
    """A process with a pool in which there is something of everything."""
    one = peer()
    one(f"pool = st.Pool.create({NAME!r}, limit=64 << 20, ticket_grace=0)")
    one("a = st.zeros((1000, 1000), pool=pool); b = st.ones(5, dtype='int64', pool=pool)")
    one("st.publish('weights', a.t()); message = b.header()")
    return one


def test_the_commands_show_what_is_there(used: Any, shmtensor: Any) -> None:
    (listed,) = [pool for pool in shmtensor("ls", "--json") if pool["name"] == NAME]
    assert (listed["state"], listed["living"], listed["dead"], listed["names"]) == ("live", 1, 0, 1)
    assert listed["limit_bytes"] == 64 << 20
    assert 4_000_000 <= listed["used_bytes"] <= listed["committed_bytes"]
    stats = shmtensor("stats", NAME, "--json")
    assert (stats["records"], stats["tickets"], stats["clients"], stats["names"]) == (2, 1, 1, 1)
    (client,) = shmtensor("clients", NAME, "--json")
    assert (client["pid"], client["alive"], client["state"]) == (used.pid, True, "live")
    first, second = shmtensor("tensors", NAME, "--json")
    assert (first["nbytes"], [holder["kind"] for holder in first["holders"]]) == (4_000_000, ["hold", "name"])
    assert (second["nbytes"], {holder["kind"] for holder in second["holders"]}) == (40, {"hold", "ticket"})
    (ticket,) = shmtensor("tickets", NAME, "--json")
    assert (ticket["nbytes"], ticket["sender_pid"]) == (40, used.pid)
    names = shmtensor("names", NAME, "--json")
    assert names["weights"]["note"] == "float32 1000,1000 1,1000 0 2"
    assert shmtensor("check", NAME, "--json") == {"name": NAME, "sound": True, "error": ""}
    for name in LOOKS:
        text = shmtensor(name, *([] if name == "ls" else [NAME]))
        assert text.strip(), name
    assert "python" in shmtensor("tensors", NAME)


def test_looking_changes_nothing_and_takes_no_place(used: Any, shmtensor: Any) -> None:
    segment = used("print(pool.commons.control.path)").strip()
    before = read_start(segment)
    for name in LOOKS[1:]:
        shmtensor(name, NAME)
    shmtensor("ls")
    shmtensor("top", NAME, "-n2", "-d0.01")
    assert read_start(segment) == before
    assert used("print(pool.stats().clients)") == "1\n"


def test_top_shows_who_holds_what(used: Any, shmtensor: Any) -> None:
    facts = shmtensor("top", NAME, "-n1", "--json")
    assert facts["holders"][0]["pid"] == used.pid
    assert facts["largest"][0]["nbytes"] == 4_000_000
    text = shmtensor("top", NAME, "-n1")
    assert "the name 'weights'" in " ".join(text.split())


def test_a_pool_is_found_by_environment(used: Any) -> None:
    done = subprocess.run(
        command("stats", "--json"),
        env={**environment(), "SHMTENSOR_POOL": NAME},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(done.stdout)["name"] == NAME


def test_ls_answers_at_once() -> None:
    """In CPU seconds, of which other programs take none."""
    times = []
    for _ in range(3):
        pid = os.posix_spawn(sys.executable, command("ls", "--json"), environment(), file_actions=TO_NOWHERE)
        _, status, usage = os.wait4(pid, 0)
        assert status == 0
        times.append(usage.ru_utime + usage.ru_stime)
    assert min(times) < 0.3
    code = "import sys\nfrom allocator.tools.listing import ls_command\nassert not {'numpy', 'rich'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True, timeout=60)


def test_reap_and_purge_work_from_outside(peer: Callable[[], Any], shmtensor: Any) -> None:
    keeper, doomed = peer(), peer()
    keeper(f"pool = st.Pool.create({NAME!r}, limit=64 << 20, ticket_grace=0); kept = st.ones(1000, pool=pool)")
    doomed(f"t = st.zeros(5_000_000, pool=st.Pool.attach({NAME!r}))")
    doomed.kill()
    (before,) = [pool for pool in shmtensor("ls", "--json") if pool["name"] == NAME]
    assert (before["living"], before["dead"]) == (1, 1)
    assert shmtensor("reap", NAME, "--json") == {"name": NAME, "reaped": 1}
    assert shmtensor("purge", NAME, "--json")["purged_bytes"] >= 20_000_000
    assert keeper(
        "pool.check(); print(pool.stats().clients, kept.numpy().sum(), pool.stats().warm_bytes < 1 << 20)"
    ) == ("1 1000.0 True\n")


def test_gc_lists_what_dead_pools_left_and_removes_only_that(peer: Callable[[], Any], shmtensor: Any) -> None:
    living, doomed, awaited = peer(), peer(), peer()
    pools = {letter: f"{letter}{os.getpid()}" for letter in "lda"}
    living(f"pool = st.Pool.create({pools['l']!r}, limit=1 << 20)")
    doomed(f"pool = st.Pool.create({pools['d']!r}, limit=1 << 20)")
    awaited(f"pool = st.Pool.create({pools['a']!r}, limit=1 << 20); message = st.ones(3, pool=pool).header()")
    doomed.kill()
    awaited.kill()

    def state() -> dict[str, bool]:
        found = {left["name"]: left["awaited"] for left in shmtensor("gc", "--dry-run", "--json")["leftovers"]}
        return {letter: found[name] for letter, name in pools.items() if name in found}

    assert state() in ({"d": False, "a": True}, {"a": True}), "whoever makes a pool meanwhile sweeps dead ones"
    shmtensor("gc")
    assert state() == {"a": True}
    assert pools["a"] in shmtensor("gc", "--all", "--json")["removed"]
    assert state() == {}
    assert living("pool.check(); print(pool.closed)") == "False\n"


def test_failures_have_their_exit_codes(used: Any, shmtensor: Any, program: Any) -> None:
    message = "shmtensor: no pool 'none' on this machine: shmtensor ls lists those there are\n"
    for name in ("stats", "clients", "check"):
        shmtensor(name, "none", status=3, stderr=message)
    program("names", "none", status=3, stderr=message)
    message = "shmtensor: no pool 'none' on this machine: create it first, or check the name\n"
    shmtensor("reap", "none", status=3, stderr=message)
    done = CliRunner().invoke(commands, ["stress", "--limit", "5 apples"])
    assert done.exit_code == 2
    assert "'5 apples' is no size" in done.stderr
    used("from allocator.core.format import Header; header = pool.commons.ledger.header; header[Header.MAGIC] += 1")
    program("stats", NAME, status=4, stderr=f"shmtensor: {NOT_OURS}\n")
    assert "unfinished" in shmtensor("ls")
    used("header[Header.MAGIC] -= 1")


def test_check_finds_what_is_broken(used: Any, shmtensor: Any) -> None:
    used(
        "from allocator.core.format import Header; header = pool.commons.ledger.header; header[Header.RESERVED] += 4096"
    )
    text = shmtensor("check", NAME, status=1)
    assert "equation 6" in text
    used("header[Header.RESERVED] -= 4096")
    used("header[Header.DIRTY] = 1")
    assert "whoever enters next repairs it" in shmtensor("check", NAME)
    used("pool.check()")


def test_stress_ends_with_a_verdict(program: Any) -> None:
    verdict = program("stress", "--seconds", "1.5", "--kill", "4", "--workers", "2", "--seed", "7", "--json")
    assert verdict["wrong"] == []
    assert verdict["kills"] > 1


def test_demo_tells_what_it_did(program: Any) -> None:
    text = program("demo")
    assert "16,777,216 elements here are 2 now, 16,777,216 still 1" in text
    assert "[7.0, 7.0, 7.0]" in text
    assert "In use now: 0 bytes" in text


@pytest.mark.parametrize("suffix", ["png", "svg", "html"])
def test_map_draws_the_heap(used: Any, shmtensor: Any, tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib", reason="the map needs the extra `plot`")
    path = tmp_path / f"heap.{suffix}"
    assert shmtensor("map", NAME, "-o", path) == f"{path}\n"
    assert path.stat().st_size > 5000
    wrong = "shmtensor: heap.bmp ends with none of .png, .svg and .html, so nobody knows what to draw\n"
    shmtensor("map", NAME, "-o", "heap.bmp", status=2, stderr=wrong)


def test_metrics_are_those_of_the_page(used: Any, shmtensor: Any) -> None:
    pytest.importorskip("prometheus_client", reason="metrics need the extra `service`")
    text = shmtensor("metrics", NAME)
    assert f'shmtensor_limit_bytes{{pool="{NAME}"}} 6.7108864e+07' in text
    assert f'shmtensor_clients{{pool="{NAME}",state="living"}} 1.0' in text
    assert f'shmtensor_slots_used_bytes{{pool="{NAME}",slot_bytes="64"}} 64.0' in text
    page = (ROOT / "docs" / "commands.md").read_text()
    named = set(re.findall(r"`(shmtensor_\w+)`", page))
    assert {line.split("{")[0] for line in text.splitlines() if not line.startswith("#")} == named


def test_every_command_has_help_and_completion_knows_them(shmtensor: Any) -> None:
    listed = shmtensor("--help")
    for name in COMMANDS:
        assert name in listed
        if name not in ("bench", "metrics"):  # another program's arguments; needs another extra
            assert shmtensor(name, "--help").startswith(f"Usage: shmtensor {name}")
    assert "_SHMTENSOR_COMPLETE" in shmtensor("completion", "bash")


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("512MiB", 512 << 20),
        ("4G", 4 << 30),
        ("1.5gb", 1_500_000_000),
        ("64 KiB", 65536),
        ("123", 123),
        ("2t", 2 << 40),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, nbytes: int) -> None:
    from allocator.tools.app import Size

    assert Size().convert(text, None, None) == nbytes


def test_sizes_and_ages_are_written_as_people_read_them() -> None:
    assert [size(n) for n in (0, 1023, 1024, 1536 << 10, 200 << 30, 3 << 40)] == [
        "0 B", "1023 B", "1.0 KiB", "1.5 MiB", "200 GiB", "3.0 TiB",
    ]  # fmt: skip
    assert [age(seconds) for seconds in (0.04, 59, 180, 7200, 260_000)] == ["0.0 s", "59 s", "3 min", "2 h", "3 d"]
