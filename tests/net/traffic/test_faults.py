# SPDX-License-Identifier: BSD-3-Clause
"""Frames that are lost, late or doubled on the fabric: TCP hides it, ping shows it."""

from __future__ import annotations

import hashlib
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.net.lab import Net, ip
from tests.net.real import NAME, ping
from tests.programs.needs import needs

SIZE = 4 << 20
PORT = 8080


def add(net: Net, *words: str) -> None:
    net.ok("fault", "host0", "add", *words)


def the_fault(net: Net) -> dict[str, Any]:
    (found,) = json.loads(net.ok("fault", "ls", "--json").stdout)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    "fault",
    [
        ("drop", "--probability", "1%", "--seed", "20261"),
        ("duplicate", "--probability", "5%", "--seed", "20262"),
        ("reorder", "--probability", "5%", "--seed", "20263"),
        ("delay", "--probability", "1%", "--delay", "2ms", "--seed", "20264"),
        ("corrupt", "--probability", "5%", "--seed", "20265"),
        ("poison", "--probability", "1%", "--seed", "20266"),
        ("flap", "--after", "100", "--duration", "20ms"),
        ("bandwidth", "--rate", "50MB/s"),
    ],
    ids=lambda words: words[0],
)
def test_tcp_delivers_a_file_as_it_is(down: Net, tmp_path: Path, fault: tuple[str, ...]) -> None:
    net = down
    net.ok("net", "up", "--mtu", "9000")
    # One segment a frame: there are enough for a hundredth of them to be some.
    net.exec("host1", [needs("ip", "iproute2"), "link", "set", NAME, "gso_max_segs", "1"])
    data = random.Random(0).randbytes(SIZE)
    (tmp_path / "file").write_bytes(data)
    serve = [net.user.python, "-m", "http.server", "--bind", ip(1), "-d", str(tmp_path), str(PORT)]
    net.listening("host1", PORT, net.start("host1", serve))
    add(net, *fault)
    fetch = f"{needs('curl', 'curl')} --noproxy '*' -sSf http://{ip(1)}:{PORT}/file | sha256sum"
    got = net.exec("host0", ["sh", "-c", fetch])
    assert got.stdout.split()[0] == hashlib.sha256(data).hexdigest()
    found = the_fault(net)
    assert found["hits"] > 0, found


def test_ping_shows_what_is_lost(net: Net) -> None:
    add(net, "drop")
    assert " 100% packet loss" in ping(net, "host0", ip(1), "-c2", "-W1", check=False).stdout
    net.ok("fault", "clear", "--all")
    assert " 0% packet loss" in ping(net, "host0", ip(1), "-c2", "-W9").stdout


def test_ping_shows_what_comes_twice(net: Net) -> None:
    add(net, "duplicate")
    # A request that comes twice is answered twice, and each answer comes twice.
    assert "+3 duplicates" in ping(net, "host0", ip(1), "-c2", "-W9").stdout


def test_ping_shows_what_is_late(net: Net) -> None:
    add(net, "delay", "--delay", "60ms")
    shown = ping(net, "host0", ip(1), "-c2", "-W9").stdout
    times_ms = [float(ms) for ms in re.findall(r"time=([\d.]+) ms", shown)]
    assert len(times_ms) == 2
    assert min(times_ms) >= 120, "there and back"
