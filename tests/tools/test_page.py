"""The page and the API of a service: who may ask, and that they show what is there."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

import pytest
from tools.shell import Service

from allocator.leaving import remove_leftover
from allocator.tools.app import size

NAME = f"web{os.getpid()}"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# What holds of the pool while these change it as fast as they can.
START = "import threading; work = threading.Thread(target=load, daemon=True); work.start()"
LOOP = """
def load():
    while not stop:
        tensor = st.zeros(300_000, pool=pool)
        st.publish("busy", tensor)
        tensor.header()
        pool.discard_tickets(older_than=0)
"""
LOADING = f"exec({LOOP!r})"


class Site:
    """A service with a page, asked by whoever has its token, or another."""

    def __init__(self) -> None:
        self.service = Service(NAME, "--http", "0", env={"SHMTENSOR_TRACE": "1"})
        name, self.address = self.service.ready.splitlines()
        assert name == NAME
        self.token = parse_qs(urlsplit(self.address).query)["token"][0]
        self.root = self.address.partition("/?")[0]

    def ask(self, path: str, token: str | None = None, method: str = "GET") -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        try:
            with urlopen(Request(self.root + path, headers=headers, method=method), timeout=20) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            with error:
                return error.code, error.read()

    def get(self, path: str) -> Any:
        status, body = self.ask(path)
        assert status == 200, body
        return json.loads(body)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.service.end()
    remove_leftover(NAME, spare_awaited=False)


@pytest.fixture
def busy(site: Site, peer: Callable[[], Any]) -> Iterator[Any]:
    """A process that has something of everything in the pool."""
    one = peer()
    one(f"import os; os.environ['SHMTENSOR_TRACE'] = '1'; stop = []; pool = st.Pool.attach({NAME!r})")
    one("a = st.zeros((1000, 1000), pool=pool); b = st.ones(5, dtype='int64', pool=pool)")
    one("private = st.zeros(2_000_000, pool=pool); st.publish('<b>weights</b>', a.t()); message = b.header()")
    one("flying = st.zeros(600_000, pool=pool); letter = flying.header(); del flying; gc.collect()")
    yield one
    one("stop.append(1); st.unpublish('<b>weights</b>', pool=pool); pool.discard_tickets(older_than=0)")


def settled(site: Site, shmtensor: Any) -> dict[str, Any]:
    """The portrait, once it is of the pool as it is now."""
    time.sleep(0.6)  # a portrait is given again for half a second
    shown = site.get("/api/pool")
    stats = shmtensor("stats", NAME, "--json")
    assert {"name": NAME, **shown["stats"], "size_classes": shown["size_classes"]} == stats
    return dict(shown)


def test_without_the_token_nothing_is_served(site: Site) -> None:
    paths = ("/", "/healthz", "/metrics", "/api/pool", "/api/stats", "/none", "//", "/../../etc/passwd")
    for path in paths:
        for token in ("", "x", site.token[:-1], site.token + "x", "é"):
            status, body = site.ask(path, token)
            assert (status, list(json.loads(body))) == (403, ["error"]), path
    assert site.ask("/")[1].startswith(b"<!doctype html>")
    with urlopen(site.address, timeout=20) as answer:
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert site.ask("/none")[0] == 404
    assert site.ask("/", method="POST")[0] == 501
    assert site.get("/healthz")["healthy"] is True
    assert urlsplit(site.address).hostname == "127.0.0.1"


def test_the_api_shows_what_stats_says(site: Site, busy: Any, shmtensor: Any) -> None:
    shown = settled(site, shmtensor)
    for command, head in (("tensors", "MADE AT"), ("tickets", "PICKLED AT")):
        lines = shmtensor(command, NAME).splitlines()
        assert lines[0].endswith(head)
        assert all(line.endswith("<string>:1 (<module>)") for line in lines[1:])
    first, second, third = shown["tensors"]
    assert (first["nbytes"], [holder["kind"] for holder in first["holders"]]) == (4_000_000, ["hold", "name"])
    assert (second["nbytes"], [holder["kind"] for holder in second["holders"]]) == (2_400_000, ["ticket"])
    assert (third["nbytes"], {holder["kind"] for holder in third["holders"]}) == (40, {"hold", "ticket"})
    assert re.fullmatch(r"<string>:1 \(<module>\)", first["site"])
    assert {ticket["site"] for ticket in shown["tickets"]} == {"<string>:1 (<module>)"}
    assert shown["names"]["<b>weights</b>"]["record"] == first["record"]
    client = next(client for client in shown["clients"] if client["pid"] == busy.pid)
    assert shown["clients"][0] == client
    assert client["kept_bytes"] > 14_000_000
    assert sum(span["used_bytes"] for span in shown["spans"]) == shown["stats"]["used_bytes"]
    assert sum(span["committed_bytes"] for span in shown["spans"]) == shown["stats"]["committed_bytes"]
    rows = {span["row"]: span for span in shown["spans"]}
    for tensor in shown["tensors"]:
        span = rows[tensor["span"]]
        assert span["start"] <= tensor["start"] < span["start"] + span["committed_bytes"]
    for part in ("stats", "clients", "tensors", "tickets", "names", "spans", "size_classes"):
        assert type(site.get(f"/api/{part}")) is type(shown[part])
    moment, used, committed, limit = site.get("/api/history")[-1]
    assert abs(moment - time.time()) < 10
    assert used <= committed <= limit == 64 << 20


def test_portraits_agree_with_themselves_while_the_pool_changes(site: Site, busy: Any, shmtensor: Any) -> None:
    busy(LOADING)
    busy(START)
    for _ in range(3):
        time.sleep(0.55)
        shown = site.get("/api/pool")
        stats = shown["stats"]
        assert sum(span["used_bytes"] for span in shown["spans"]) == stats["used_bytes"]
        assert len(shown["tensors"]) == stats["records"]
        assert len(shown["tickets"]) == stats["tickets"]
        assert len(shown["names"]) == stats["names"]
        assert len(shown["clients"]) == stats["clients"] == 2
    busy(
        "stop.append(1); work.join(); st.unpublish('busy', pool=pool); pool.discard_tickets(older_than=0); pool.check()"
    )
    settled(site, shmtensor)


def test_metrics_are_served(site: Site, busy: Any) -> None:
    pytest.importorskip("prometheus_client", reason="metrics need the extra `service`")
    status, body = site.ask("/metrics")
    assert status == 200
    assert f'shmtensor_limit_bytes{{pool="{NAME}"}} 6.7108864e+07' in body.decode()


def test_bad_and_slow_requests_stop_neither_the_page_nor_the_upkeep(site: Site) -> None:
    where = (urlsplit(site.root).hostname, urlsplit(site.root).port)
    nonsense = (
        b"\0\xff\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"x" * 70000,
        b"GET http://[/ HTTP/1.0\r\n\r\n",
    )
    for text in nonsense:
        with socket.create_connection(where, timeout=20) as channel:
            channel.sendall(text)
            channel.shutdown(socket.SHUT_WR)
            assert b"limit_bytes" not in channel.recv(65536)
    silent = [socket.create_connection(where, timeout=20) for _ in range(40)]  # more than there are places
    time.sleep(1.1)
    for channel in silent:
        channel.close()
    time.sleep(0.1)
    assert site.get("/healthz")["upkeep_seconds"] < 5
    assert site.service.process.poll() is None


def test_the_page_goes_with_a_service_that_is_killed(shmtensor: Any) -> None:
    name = f"gone{os.getpid()}"
    service = Service(name, "--http", "127.0.0.1:0", env={"SHMTENSOR_HTTP_TOKEN": "a token"})
    address = service.ready.splitlines()[1]
    assert address.endswith("/?token=a%20token")
    with urlopen(address, timeout=20) as answer:
        assert answer.status == 200
    service.kill()
    deadline = time.monotonic() + 20
    port = urlsplit(address).port
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except ConnectionRefusedError:
            break
        assert time.monotonic() < deadline
        time.sleep(0.01)
    remove_leftover(name, spare_awaited=False)


def test_an_address_in_use_is_told_before_anything_is_made(shmtensor: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        from click.testing import CliRunner

        from allocator.tools.app import commands

        done = CliRunner().invoke(commands, ["serve", "--name", "never", "--http", str(port)])
    assert done.exit_code == 2
    assert f"can't listen on 127.0.0.1 port {port}" in done.stderr
    assert "never" not in [pool["name"] for pool in shmtensor("ls", "--json")]


def dom(address: str, profile: Path) -> str:
    """What a browser makes of the page once it has looked."""
    assert BROWSER is not None
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --disable-dev-shm-usage --virtual-time-budget=1500 --dump-dom"
    )
    done = subprocess.run(
        [BROWSER, *flags.split(), f"--user-data-dir={profile}", address],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # a browser's own troubles, e.g. without D-Bus
        check=True,
        timeout=90,
    )
    return done.stdout.decode()


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
def test_a_browser_shows_what_stats_says(site: Site, busy: Any, shmtensor: Any, tmp_path: Path) -> None:
    shown = settled(site, shmtensor)
    stats, published = shown["stats"], shown["tensors"][0]
    text = dom(f"{site.address}#record={published['record']}", tmp_path)
    assert 'data-looked="yes"' in text
    assert re.search(r'<span id="trouble" role="status"></span>', text), "the page says that something is wrong"
    for name in ("used", "committed", "peak", "limit", "free"):
        assert f'<b id="{name}">{size(stats[f"{name}_bytes"])}</b>' in text
    counts = f"{stats['clients']} processes · 3 blocks shared · {stats['tickets']} messages · 1 names"
    assert f'<span id="counts">{counts}</span>' in text
    tables = {
        name: re.findall(r"<tr.*?</tr>", body)[1:]
        for name, body in re.findall(r'<table id="(\w+)">(.*?)</table>', text, re.DOTALL)
    }
    assert [len(tables[name]) for name in ("clients", "tensors", "tickets", "names")] == [2, 3, 2, 1]
    assert size(shown["clients"][0]["kept_bytes"]) in tables["clients"][0]
    assert f">{busy.pid}<" in tables["clients"][0]
    assert ["a message of python" in unescape(row) for row in tables["tensors"]] == [False, True, True]
    (block,) = re.findall(r'<dl id="block">(.*?)</dl>', text)
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", block))
    assert facts["Bytes"] == f"{size(4_000_000)} (4,000,000)"
    assert facts["Layout"] == "float32, shape (1000, 1000), strides (1, 1000), offset 0"
    assert facts["Published as"] == "&lt;b&gt;weights&lt;/b&gt;"
    assert unescape(facts["Made at"]) == published["site"] == "<string>:1 (<module>)"
    (keys,) = re.findall(r'<div class="keys" id="keys">(.*?)</div>', text)
    assert f"in flight {size(2_400_000 + 64)}" in unescape(keys)
    assert f'<h2 id="scale">Heap: {len(shown["spans"])} spans' in text


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
def test_a_browser_without_the_token_shows_nothing(site: Site, busy: Any, tmp_path: Path) -> None:
    text = dom(site.root, tmp_path)
    assert "the token is part of it" in text
    assert NAME not in text
