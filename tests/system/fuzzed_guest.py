# SPDX-License-Identifier: BSD-3-Clause
"""A guest whose segment is written to by others: run there as `fuzzed_guest.py ROLE ...`.

Its device stands beside an interface that needs no memory of the fabric, and its programs meet by
the guests' own network.  Packets go over nupa_net0 meanwhile.
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
from tests.system.kernel import PATIENCE, insert, load, unload

_BESIDE, _OTHER = "fuzz0", "fuzz1"
_NET = "10.9.0."  # of nupa_net0
_MAC = "02:00:00:00:00:"
#: KFENCE finds some accesses to freed memory: it takes an allocation each so many milliseconds.
_KFENCE = Path("/sys/module/kfence/parameters/sample_interval")
#: Of a listener of the kernel's connection manager (scribble.c).
_PORT = "7174"
_GID, _ROUNDS = "1", "300"
#: Of a program whose completions do not come.
_PATIENCE_S = 3.0 * PATIENCE
#: Until a server listens; until the first pair ends well.
_START_S, _FIRST_S = 0.5 * PATIENCE, 60.0 * PATIENCE
_ALONE = (
    ("ibv_rc_pingpong",),
    ("ibv_uc_pingpong",),
    ("ibv_rc_pingpong", "-e"),
    ("ibv_ud_pingpong",),
    ("ibv_srq_pingpong",),
)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def begin(number: str, hosts: str) -> None:
    """Makes the interface of host *number* of so many, and unloads what the guest booted with."""
    load("ib_uverbs", "rdma_ucm", "veth")
    if _KFENCE.exists():  # a kernel with KASAN needs none
        _KFENCE.write_text("1")
    _ip("link", "add", _BESIDE, "type", "veth", "peer", "name", _OTHER)
    _ip("link", "set", _BESIDE, "address", f"{_MAC}{int(number) + 1:02x}")
    _ip("address", "add", f"10.0.0.{int(number) + 1}/24", "dev", _BESIDE)
    for name in (_BESIDE, _OTHER):
        _ip("link", "set", name, "up")
    for each in range(int(hosts)):
        if each != int(number):  # nobody is there to be asked for it
            at = ("to", f"10.0.0.{each + 1}", "dev", _BESIDE)
            _ip("neigh", "add", *at, "lladdr", f"{_MAC}{each + 1:02x}", "nud", "permanent")
    leave()


def attach(*words: str) -> None:
    """Loads the modules, nupa_core with these parameters, and makes the device."""
    insert("nupa_core", " ".join(words))
    insert("nupa_net", "")
    insert("nupa_rdma", "")
    (host,) = (word.removeprefix("host=host") for word in words if word.startswith("host="))
    _ip("address", "add", f"{_NET}{int(host) + 1}/24", "dev", "nupa_net0")
    _ip("link", "set", "nupa_net0", "up")
    link = ["rdma", "link", "add", "nupa_rdma0", "type", "nupa", "netdev", _BESIDE]
    subprocess.run(link, check=True)


def leave() -> None:
    """Unloads the modules; prints how long that took."""
    begun_s = time.monotonic()
    unload("nupa_rdma", "nupa_net", "nupa_core")
    print(time.monotonic() - begun_s)


def _quiet(*words: str) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=quiet)


def _program(*words: str) -> subprocess.Popen[bytes]:
    return _quiet(*words, "-g", _GID, "-n", _ROUNDS)


def _end(programs: list[subprocess.Popen[bytes]], until_s: float) -> bool:
    """Waits for their ends until then, and kills what is left; whether all ended well."""
    for each in programs:
        with contextlib.suppress(subprocess.TimeoutExpired):
            each.wait(max(until_s - time.monotonic(), 0.01))
    for each in programs:
        each.kill()
        each.wait()
    return all(each.returncode == 0 for each in programs)


def traffic(seconds: str, port: str, server: str = "") -> None:
    """Runs programs until the first pair ends well, says so, and goes on for so long, whatever
    becomes of them; prints how many there were, and how many ended well.

    One pair is in this guest.  Beside it run a listener, for messages that are made up, and one end
    of a pair with the other guest: the client of *server*, or without one the server; and packets
    to the other's nupa_net0, which answers.
    """
    until_s = time.monotonic() + _FIRST_S
    listener = _quiet("rping", "-s", "-P", "-a", "0.0.0.0", "-p", _PORT)
    packets = _quiet("ping", "-i", "0.002", "-s", "9000", f"{_NET}{1 if server else 2}")
    between = _program("ibv_rc_pingpong", "-p", port, *filter(None, [server]))
    begun, good, said = 0, 0, False
    for number, words in enumerate(itertools.cycle(_ALONE)):
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            break
        own = str(int(port) + 1 + number % 500)
        pair = [_program(*words, "-p", own)]
        with contextlib.suppress(subprocess.TimeoutExpired):  # it listens by then
            pair[0].wait(_START_S)
        pair.append(_program(*words, "-p", own, "localhost"))
        well = _end(pair, time.monotonic() + min(_PATIENCE_S, left_s))
        if well and not said:
            said = True
            print("good", flush=True)
            until_s = time.monotonic() + float(seconds)
        begun, good = begun + 1, good + well
        if between.poll() is not None or number % 3 == 2:
            begun, good = begun + 1, good + (between.poll() == 0)
            _end([between], time.monotonic())
            between = _program("ibv_rc_pingpong", "-p", port, *filter(None, [server]))
    _end([between, listener, packets], time.monotonic())
    print(begun, good)


_ROLES = {"begin": begin, "attach": attach, "leave": leave, "traffic": traffic}

if __name__ == "__main__":
    _ROLES[sys.argv[1]](*sys.argv[2:])
