# SPDX-License-Identifier: BSD-3-Clause
"""Real programs on hosts: iperf3's results, Python scripts, the state of interfaces."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from nupa.programs.pair import Program, ProgramOutcome
from tests.net.lab import DEADLINE_S, Net, ip
from tests.programs.needs import needs

NAME = "nupa_net0"
IPERF_PORT = 5201
BLOCK_BYTES = 128 << 10  # that iperf3 sends at a time


def script(net: Net, name: str, *arguments: object) -> list[str]:
    """Returns the command line of a script of the folder `inside`."""
    path = Path(__file__).with_name("inside") / f"{name}.py"
    # Another user may not be able to read it there.
    what = ["-c", path.read_text()] if net.user.prefix else [str(path)]
    return [net.user.python, "-u", "-P", *what, *map(str, arguments)]


def link(net: Net, host: str) -> dict[str, Any]:
    """Returns `ip -s link` of the interface; flags and stats64 are keys of it."""
    command = [needs("ip", "iproute2"), "-j", "-s", "link", "show", NAME]
    (found,) = json.loads(net.exec(host, command).stdout)
    assert isinstance(found, dict)
    return found


def received(net: Net, host: str) -> int:
    """Packets, as the interface counts them."""
    return int(link(net, host)["stats64"]["rx"]["packets"])


def has_carrier(net: Net, host: str) -> bool:
    return "NO-CARRIER" not in link(net, host)["flags"]


def carrier_becomes(net: Net, host: str, up: bool, deadline_s: float = 10) -> None:
    """Waits until the interface has a carrier, or has none."""
    end_s = time.monotonic() + deadline_s
    while has_carrier(net, host) is not up:
        assert time.monotonic() < end_s, link(net, host)


def ping(net: Net, host: str, to: str, *options: str, check: bool = True) -> ProgramOutcome:
    command = [needs("ping", "iputils-ping"), "-n", *options, to]
    return net.exec(host, command, check=check)


def ping_all(net: Net, host: str, to: str, count: int, *options: str) -> None:
    """Sends *count* pings, all of which are answered.

    ping waits for the last answers only as long as two round trips took before, which a busy
    machine may miss.  The kernel counts later answers, too.
    """
    lost = _unanswered(net, host)
    done = ping(net, host, to, "-c", str(count), *options, check=False)
    assert f"{count} packets transmitted" in done.stdout, done.describe()
    assert "wrong data byte" not in done.stdout, done.describe()
    end_s = time.monotonic() + DEADLINE_S / 4
    while " 0% packet loss" not in done.stdout:
        missing = _unanswered(net, host) - lost
        if missing <= 0:
            break
        assert time.monotonic() < end_s, f"{missing} unanswered: {done.describe()}"


def _unanswered(net: Net, host: str) -> int:
    """Returns how many echo requests that the host sent have no reply yet, of both families
    (snmp_counter)."""
    found = net.exec(host, ["cat", "/proc/net/snmp", "/proc/net/snmp6"]).stdout
    icmp = [line.split() for line in found.splitlines() if line.startswith("Icmp:")]
    icmp6 = [line.split() for line in found.splitlines() if line.startswith("Icmp6")]
    count = dict(zip(*icmp, strict=True)) | dict(icmp6)
    sent = int(count["OutEchos"]) + int(count["Icmp6OutEchos"])
    return sent - int(count["InEchoReps"]) - int(count["Icmp6InEchoReplies"])


def hears_nothing(net: Net, host: str, to: str) -> None:
    """Checks that all of a few pings are lost."""
    lost = ping(net, host, to, "-c", "4", "-i", "0.05", "-W", "0.3", check=False)
    assert "100% packet loss" in lost.stdout, lost.describe()


def iperf_server(net: Net, host: str = "host1") -> Program:
    """Starts a server for one client."""
    server = net.start(host, [needs("iperf3", "iperf3"), "-s", "-1", "-p", str(IPERF_PORT)])
    net.listening(host, IPERF_PORT, server)
    return server


def iperf_argv(*options: str, to: str = ip(1)) -> list[str]:
    return ["iperf3", "-c", to, "-p", str(IPERF_PORT), "-J", "--connect-timeout", "5000", *options]


def iperf(net: Net, *options: str, to: str = ip(1), seconds: float = 1) -> dict[str, Any]:
    """Runs iperf3 from host0 to host1 to its end; what it found, without the start."""
    server = iperf_server(net)
    argv = iperf_argv("-t", f"{seconds:g}", *options, to=to)
    outcome = net.exec("host0", argv)
    server.wait(DEADLINE_S).check()
    return iperf_end(outcome)


def iperf_end(outcome: ProgramOutcome) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(outcome.stdout)
    assert "error" not in found, found["error"]
    end = found["end"]
    assert isinstance(end, dict)
    return end


def all_stream(end: dict[str, Any], streams: int, *, least_bytes: int = 1 << 20) -> None:
    """Checks that each of *streams* TCP streams moved something, all of which arrived.

    iperf3 pairs the two ends of a stream by the order in which the server accepted them.  Two
    queues may finish handshakes in another order, so bytes are compared by direction.
    """
    assert len(end["streams"]) == streams
    for forward in (True, False):
        ends = [each for each in end["streams"] if each["sender"]["sender"] is forward]
        sent = sum(each["sender"]["bytes"] for each in ends)
        arrived = [each["receiver"]["bytes"] for each in ends]
        # iperf3 3.18 counts a block that it sends as its time ends at the receiver alone.
        assert sent + len(ends) * BLOCK_BYTES >= sum(arrived), ends
        assert all(each >= least_bytes for each in arrived), ends
