# SPDX-License-Identifier: BSD-3-Clause
"""Keepers that are processes: started, asked, killed, and gone with their fabric."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nupa.base.process import of_pid
from nupa.fabric import Fabric, NupaError
from nupa.packet.scapy.transport import BTH
from nupa.topology.file import parse
from nupa.topology.topology import WIRES_MAX, TopologyError, WireConfig, star
from nupa.verbs import AH, GID, AHAttr, GlobalRoute, SendWR
from nupa.verbs import enums as e
from tests.unit.conftest import End
from tests.unit.wire.keeping import PORT, REQUEST, Far, address, await_wire, mapped

OWN, THERE, ELSEWHERE = address(0), address(1), address(2)
GID_INDEX = 3  # of the wire's local address

pytestmark = pytest.mark.usefixtures("folder")


def nupa(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "nupa", *words], capture_output=True, text=True, timeout=60
    )


def ok(*words: str) -> str:
    done = nupa(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def await_end(pid: int) -> None:
    end_s = time.monotonic() + 20
    while of_pid(pid) is not None:
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_commands_make_list_and_end_wires() -> None:
    made = ok("up", "--fabric", "w", "--wire", f"far0={THERE},{OWN}")
    assert made == "w is up: 2 hosts (host0 to host1), 1 wire (far0), 1 switch\n"
    try:
        done = ok("wire", "add", "host1", "--fabric", "w", "--address", ELSEWHERE, "--listen", OWN)
        assert done.startswith(f"host1 is a wire to {ELSEWHERE} from {OWN}: UDP, 1 of 65,536 ")
        wires = json.loads(ok("wire", "ls", "--fabric", "w", "--json"))
        assert [(wire["host"], wire["address"], wire["listen"]) for wire in wires] == [
            ("far0", THERE, OWN),
            ("host1", ELSEWHERE, OWN),
        ]
        assert len({wire["keeper"] for wire in wires}) == 1
        assert "1 of 65,536 passes" in ok("wire", "ls", "--fabric", "w")
        assert "far0" in ok("show", "w")
        refused = nupa("wire", "add", "far0", "--fabric", "w", "--address", THERE, "--listen", OWN)
        assert refused.returncode == 1
        assert "far0 is a wire already: `nupa wire remove far0` ends it" in refused.stderr
        refused = nupa("run", "--fabric", "w", "--host", "far0", "--", "true")
        assert "is a wire, whose programs run on the machine at its other end" in refused.stderr
        ok("wire", "remove", "far0", "--fabric", "w")
        ok("wire", "remove", "host1", "--fabric", "w")
        await_end(wires[0]["keeper"])
        assert "has no wire" in ok("wire", "ls", "--fabric", "w")
    finally:
        ok("down", "w")


def test_a_wire_whose_keeper_waits_for_its_port_is_starting() -> None:
    ok("up", "--fabric", "w")
    add = ("wire", "add", "host1", "--fabric", "w", "--address", THERE, "--listen", OWN)
    try:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
            Fabric.open("w") as fabric,
        ):
            other.bind((OWN, PORT))
            states = set()
            with subprocess.Popen(
                [sys.executable, "-P", "-m", "nupa", *add], stderr=subprocess.PIPE, text=True
            ) as adding:
                while adding.poll() is None:
                    states |= {(wire.host, wire.state, wire.pid) for wire in fabric.wires}
                    time.sleep(0.01)
                _, said = adding.communicate()
            assert f"UDP port {PORT} of {OWN} is in use" in said
            assert states == {("host1", "STARTING", 0)}
            assert not list(fabric.wires)
    finally:
        ok("down", "w")


def test_the_death_of_a_keeper_is_shown_and_a_new_one_takes_its_place() -> None:
    with Fabric.create("w", star(1).with_wires((WireConfig("far", THERE, OWN),))) as fabric:
        first = fabric.wires.of("far").pid
        os.kill(first, signal.SIGKILL)
        await_wire(fabric, lambda wire: wire.state == "DEAD")
        assert "its keeper has died" in ok("wire", "ls", "--fabric", "w")
        wire = fabric.wires.add("far", THERE, listen=OWN)
        assert wire.pid not in (0, first)
        os.kill(wire.pid, signal.SIGKILL)
        await_wire(fabric, lambda wire: wire.state == "DEAD")
        fabric.wires.remove("far")
        assert list(fabric.wires) == []
    ok("down", "w")


def sends(end: End, far: Far, qpn: int) -> None:
    """Sends to a QP at the other end of the wire, and waits until the packet is there."""
    route = GlobalRoute(dgid=GID(mapped(THERE).hex(":", 2)), sgid_index=GID_INDEX, hop_limit=64)
    wr = SendWR(1, sg=[end.mr.sge(0, 8)])
    with AH(end.pd, attr=AHAttr(is_global=1, port_num=1, gr=route)) as ah:
        wr.set_wr_ud(ah, qpn, end.QKEY)
        end.qp.post_send(wr)
        end.wait_ok()
    while far.receive()[0][BTH].dqpn != qpn:
        pass


def test_programs_use_the_keeper_that_takes_the_place_of_a_dead_one() -> None:
    with Fabric.create("w", star(1).with_wires((WireConfig("far", THERE, OWN),))) as fabric:
        end, far = End(fabric, 0, e.IBV_QPT_UD), Far(THERE, OWN)
        try:
            sends(end, far, 0x100000)
            for qpn in (0x200000, 0x300000):
                os.kill(fabric.wires.of("far").pid, signal.SIGKILL)
                await_wire(fabric, lambda wire: wire.state == "DEAD")
                fabric.wires.add("far", THERE, listen=OWN)
                sends(end, far, qpn)
        finally:
            far.close()
            end.ctx.close()
    ok("down", "w")


def test_a_signal_ends_a_keeper_and_its_wires() -> None:
    with Fabric.create("w", star(1).with_wires((WireConfig("far", THERE, OWN),))) as fabric:
        keeper = fabric.wires.of("far").pid
        os.kill(keeper, signal.SIGTERM)
        await_end(keeper)
        assert list(fabric.wires) == []
    ok("down", "w")


def test_a_keeper_ends_with_its_fabric_also_by_force() -> None:
    with Fabric.create("w", star(1).with_wires((WireConfig("far", THERE, OWN),))) as fabric:
        keeper = fabric.wires.of("far").pid
    ok("down", "w")
    await_end(keeper)


def test_a_fabric_whose_wire_cannot_be_is_not_made(folder: Path) -> None:
    topology = star(1).with_wires((WireConfig("far", THERE, "192.0.2.77"),))
    with pytest.raises(NupaError, match="none of this machine"):
        Fabric.create("w", topology)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "request_text",
    [
        "",
        "{}",
        "[]",
        "null",
        '{"op": "dance", "host": "far"}',
        '{"op": "add", "host": "host0"}',
        '{"op": "add", "host": "host0", "address": "nowhere.invalid", "medium": "udp"}',
        '{"op": "add", "host": "host0", "address": "127.0.0.9", "medium": "smoke"}',
        '{"op": "remove", "host": "host0"}',
        '{"op": "remove", "host": ' + "[" * 900,
        "\xff\x00" * 100,
    ],
)
def test_hostile_requests_are_answered_and_change_nothing(request_text: str) -> None:
    with Fabric.create("w", star(1).with_wires((WireConfig("far", THERE, OWN),))) as fabric:
        path = fabric.wires.of("far").socket
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asker:
            asker.settimeout(20)
            asker.connect(path)
            asker.send(struct.pack("=I", REQUEST) + request_text.encode("latin-1"))
            answer = json.loads(asker.recv(2048))
        assert answer["ok"] is False
        assert answer["why"]
        assert [wire.host for wire in fabric.wires] == ["far"]
    ok("down", "w")


# --- topologies ---------------------------------------------------------------------------

_TOML = """
[[switch]]
name = "switch0"
ports = 40
[[host]]
name = "host0"
switch = "switch0"
"""


def test_a_topology_names_wires() -> None:
    text = _TOML + '[[wire]]\nhost = "far0"\naddress = "192.0.2.7"\nlisten = "192.0.2.5"\n'
    topology = parse(text.encode(), "lab.toml", "lab")
    assert topology.wires == (WireConfig("far0", "192.0.2.7", "192.0.2.5"),)
    assert [host.name for host in topology.hosts] == ["host0", "far0"]


@pytest.mark.parametrize(
    ("wires", "why"),
    [
        ([{"host": "far0"}], "address"),
        ([{"address": "192.0.2.7"}], "host"),
        ([{"host": "a", "address": "192.0.2.7", "speed": 1}], "speed"),
        ([{"host": "a", "address": "there"}], "give an IPv4 or IPv6 address"),
        ([{"host": "a", "address": "::1", "listen": "here"}], "`listen` is 'here'"),
        ([{"host": "a", "address": "::1"}, {"host": "a", "address": "::2"}], "a host has one"),
        ([{"host": "a", "address": "::1"}, {"host": "b", "address": "::1"}], "each needs its own"),
        (
            [{"host": f"f{i}", "address": f"192.0.2.{i}"} for i in range(WIRES_MAX + 1)],
            "17 wires: a fabric has at most 16",
        ),
    ],
)
def test_wrong_wires_of_a_topology_are_refused(wires: list[dict[str, object]], why: str) -> None:
    text = _TOML
    for wire in wires:
        text += "[[wire]]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in wire.items())
    with pytest.raises(TopologyError, match=why):
        parse(text.encode(), "lab.toml", "lab")


def test_wires_are_of_ethernet() -> None:
    text = 'link_layer = "infiniband"\n' + _TOML + '[[wire]]\nhost = "a"\naddress = "::1"\n'
    with pytest.raises(TopologyError, match="set link_layer to ethernet"):
        parse(text.encode(), "lab.toml", "lab")
