"""What the machine offers, read from files that a test can write."""

from __future__ import annotations

from pathlib import Path

from allocator.system.host import cgroup_files, room


def make(folder: Path, *names: str) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("1")
    return [str(folder / name) for name in names]


def test_every_memory_cgroup_up_to_the_root_counts(tmp_path: Path) -> None:
    inner = make(tmp_path / "user" / "job", "memory.max", "memory.current")
    outer = make(tmp_path / "user", "memory.max", "memory.current")
    make(tmp_path, "cgroup.procs")  # the root of version 2 has no limit
    assert cgroup_files("0::/user/job\n", str(tmp_path)) == [tuple(inner), tuple(outer)]


def test_version_1_keeps_memory_in_a_hierarchy_of_its_own(tmp_path: Path) -> None:
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    inner, root = make(tmp_path / "memory" / "job", *names), make(tmp_path / "memory", *names)
    memberships = "5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n"
    assert cgroup_files(memberships, str(tmp_path)) == [tuple(inner), tuple(root)]


def test_a_container_that_sees_only_its_own_root_reads_that(tmp_path: Path) -> None:
    files = make(tmp_path, "memory.max", "memory.current")
    assert cgroup_files("0::/\n", str(tmp_path)) == [tuple(files)]


def test_without_any_cgroup_files_other_bounds_decide(tmp_path: Path) -> None:
    assert cgroup_files("4:memory:/gone\n0::/\n", str(tmp_path)) == []
    assert room().nbytes > 0
    assert room().bound
