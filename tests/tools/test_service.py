"""The service as a process: what it does, who is told, and that nobody misses it when it is killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.shell import Service, command, environment

from allocator.errors import PoolNotFound
from allocator.leaving import remove_leftover
from allocator.looking import glance

NAME = f"srv{os.getpid()}"
SECONDS = 20.0

OWN_SHM = [
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "sh",
    "-c",
    'mount -t tmpfs tmpfs /dev/shm && exec "$@"',
    "-",
]


def can_mount() -> bool:
    """Whether processes here may have a /dev/shm of their own."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*OWN_SHM, "true"], capture_output=True, check=False).returncode == 0


LOAD = """
import select, sys
from allocator import Pool
from allocator.tools.stressing import Worker

pool = Pool.attach(sys.argv[1], timeout=20)
worker = Worker(pool, sys.argv[2])
steps = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    worker.step()
    steps += 1
pool.check()
print(steps)
"""


def until(true: Callable[[], Any]) -> None:
    """Wait until it is."""
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, "that never came"
        time.sleep(0.01)


def is_gone() -> bool:
    try:
        glance(NAME)
    except PoolNotFound:
        return True
    return False


@pytest.fixture
def serve() -> Iterator[Callable[..., Service]]:
    """Starts services; afterwards none runs, and nothing of the pool is left."""
    made: list[Service] = []

    def start(*options: str, env: dict[str, str] | None = None) -> Service:
        made.append(Service(NAME, *options, env=env))
        return made[-1]

    yield start
    for service in made:
        if service.process.poll() is None:
            service.kill()
    remove_leftover(NAME, spare_awaited=False)


def test_a_service_makes_a_pool_keeps_names_without_clients_and_takes_it_away(serve: Any, peer: Any) -> None:
    service = serve()
    assert service.ready == f"{NAME}\n"
    one = peer()
    one(f"st.publish('x', st.arange(5, pool=st.Pool.attach({NAME!r})))")
    one.end()
    until(lambda: glance(NAME).living == 1)
    two = peer()
    two(f"import os; os.environ['SHMTENSOR_POOL'] = {NAME!r}")
    assert two("print(st.lookup('x').tolist(), st.default_pool().limit)") == "[0, 1, 2, 3, 4] 67108864\n"
    assert glance(NAME).state == "served"
    two.end()
    assert service.end()[0] == "made"
    assert is_gone()


def test_what_a_killed_client_had_comes_back_within_seconds(serve: Any, peer: Any) -> None:
    service, one = serve(), peer()
    one(f"pool = st.Pool.attach({NAME!r}); big = st.zeros(5_000_000, pool=pool)")
    until(lambda: glance(NAME).used_bytes >= 20_000_000 and len(glance(NAME).clients) == 2)
    time.sleep(1.2)  # so that the service has seen it come
    one.kill()
    until(lambda: glance(NAME).used_bytes == 0 and len(glance(NAME).clients) == 1)
    service.tell(signal.SIGTERM)
    events = service.events()
    went = [event for event in events if event["event"] == "client went"]
    assert [event["pid"] for event in went] == [one.pid]
    assert {"event": "reaped", "clients": 1}.items() <= next(e for e in events if e["event"] == "reaped").items()


def test_killed_at_any_time_under_load_it_is_missed_by_nobody(serve: Any) -> None:
    serve().kill()  # nobody but it had the pool
    loads = [
        subprocess.Popen(
            [sys.executable, "-c", LOAD, NAME, str(seed)],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in range(2)
    ]
    first = serve()
    until(lambda: glance(NAME).living == 3)
    first.kill()
    for _ in range(3):
        service = serve()
        time.sleep(random.uniform(0, 0.4))
        service.kill()
        assert glance(NAME).living >= 2
    last = serve()
    for load in loads:
        out, err = load.communicate("stop", timeout=SECONDS)
        assert (load.returncode, err) == (0, "")
        assert int(out) > 100
    until(lambda: len(glance(NAME).clients) == 1)
    assert last.end()[0] == "took over"
    assert is_gone()


RESTART = """
from allocator import Pool
from allocator.leaving import find_leftovers
from allocator.looking import glance
from tools.shell import Peer, Service

service, one = Service("srv"), Peer()
one("st.publish('x', st.arange(5, pool=st.Pool.attach('srv')))")
service.kill()
one.end()
assert (glance("srv").state, glance("srv").living) == ("orphaned", 0)
assert [(leftover.name, leftover.awaited) for leftover in find_leftovers()] == [("srv", True)]
two = Peer()
two("st.Pool.create(limit=1 << 20).close()")  # which sweeps what dead pools left
service = Service("srv")
assert two("print(st.lookup('x', pool=st.Pool.attach('srv')).tolist())") == "[0, 1, 2, 3, 4]\\n"
two.end()
assert service.end()[0] == "took over"
assert not find_leftovers()
"""


@pytest.mark.skipif(not can_mount(), reason="needs `unshare --mount` for a /dev/shm that no other program sweeps")
def test_names_outlive_the_service_and_all_clients_until_the_next_service_comes() -> None:
    variables = environment()
    variables["PYTHONPATH"] += os.pathsep + str(Path(__file__).parents[1])
    done = subprocess.run(
        [*OWN_SHM, sys.executable, "-c", RESTART],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_service_that_leaves_lets_nobody_in_and_waits_for_those_there_are(serve: Any, peer: Any) -> None:
    service, one, two = serve("--drain", "15"), peer(), peer()
    one(f"pool = st.Pool.attach({NAME!r})")
    service.tell(signal.SIGTERM)
    attempt = (
        f"try: two = st.Pool.attach({NAME!r}).close()\nexcept st.PoolClosed as error: print(error)\nelse: print('in')"
    )
    until(lambda: "its service is leaving" in two(f"exec({attempt!r})"))
    one("st.zeros(1000, pool=pool).fill_(1)")
    assert service.process.poll() is None
    one.end()
    assert [event["event"] for event in service.events()][-1] == "left"
    assert service.process.returncode == 0
    assert is_gone()


def test_told_twice_it_leaves_at_once_and_the_pool_goes_with_its_last_client(serve: Any, peer: Any) -> None:
    service, one = serve("--drain", "1000"), peer()
    one(f"pool = st.Pool.attach({NAME!r}); kept = st.ones(10, pool=pool)")
    service.tell(signal.SIGINT)
    service.tell(signal.SIGTERM)
    service.events()
    assert service.process.returncode == 0
    assert glance(NAME).state == "live"
    assert one("print(kept.numpy().sum())") == "10.0\n"
    two = peer()
    two(f"pool = st.Pool.attach({NAME!r})")  # let in again
    two.end()
    one.end()
    assert is_gone()


def test_an_idle_service_leaves(serve: Any, peer: Any) -> None:
    service, one = serve("--idle-exit", "1"), peer()
    one(f"pool = st.Pool.attach({NAME!r})")
    time.sleep(2)
    assert service.process.poll() is None
    one.end()
    assert service.events()[-2]["event"] == "idle"
    assert service.process.returncode == 0
    assert is_gone()


def test_one_pool_has_one_service(serve: Any) -> None:
    first = serve()
    second = subprocess.run(
        command("serve", "--name", NAME),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert second.returncode == 4
    assert second.stderr == f"shmtensor: pool {NAME!r} has a service already: process {first.pid}\n"
    first.end()


def test_systemd_is_told(serve: Any, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(SECONDS)
        service = serve(env={"NOTIFY_SOCKET": str(tmp_path / "notify")})
        assert systemd.recv(100) == b"READY=1"
        assert systemd.recv(100) == b"WATCHDOG=1"
        service.end()
        while (said := systemd.recv(100)) != b"STOPPING=1":
            assert said == b"WATCHDOG=1"
