# SPDX-License-Identifier: BSD-3-Clause
"""`nupa fm`: output, requests, failures, and a server that leaves nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from nupa.cli import main
from nupa.cxl.fm.server.server import Server, path_of
from nupa.cxl.site.site import Site
from nupa.fabric import Fabric
from nupa.memory.window import Window
from nupa.topology.topology import HostConfig, SwitchConfig, Topology, TrunkConfig, star
from tests.unit.cli.command import Nupa

STEP = 256 << 20
Run = Callable[..., str]


WORDS = ("fm",)
#: What is refused once port 2 is bound to host 0 as its vPPB 1, and the reason.
REASONS = {
    "bind 1 0 2": "port 2 is already bound to host0, as its vPPB 1",
    "bind 0 1 3": "vPPB 1 of host0 is already bound, to port 2: unbind it first",
    "bind 0 9 3": "vPPB 9: virtual switch 0 has 4, from 0 on",
    "bind 9 0 3": "virtual switch 9: the switch has 2, from 0 on",
    "bind 0 0 1": "port 1 is an upstream port: only a downstream port can be bound",
    "bind 0 0 3": "port 3 has a multi-logical device: name one of its LDs",
    "bind 0 0 3 --ld 77": "LD 77: mld3 has 16, from 0 on",
    "bind 0 0 200": "port 200: the switch has 4, from 0 on",
    "unbind 0 0": "vPPB 0 of host0 is not bound: it is unbound",
    "lds 2": "port 2 has no multi-logical device with its link up",
    "alloc 3 15 256M 256M": "LD 16: mld3 has 16, from 0 on",
    "port 2 reset": "port 2 is bound, so only its host may reset it: unbind it first",
    "config 2 0": "port 2 is bound: its bridge is the host's",
    "config 0 0": "port 0 is an upstream port: it has no bridge to read",
    "config 3 2 --ld 0": "offset 0x2 is not that of a DW, a multiple of 4",
    "memory 3 0 0 3": "3 bytes at 0x0: an access has whole DWs, 4096 bytes at most",
    "memory 3 0 0 4": "4 bytes at 0x0 are not all in a BAR of the LD",
    "qos 3 severe_percent=101": "severe_percent is 101: choose 1 to 100",
    "qos 3 severe_percent=500": "severe_percent is 500: choose 0 to 255",
    "bandwidth 3 0 200 100": "300/256 of the bandwidth: LDs share 256/256",
    "bandwidth 3 0 256": "256 does not fit a byte: choose 0 to 255",
    "secret 9": "virtual switch 9: the switch has 2, from 0 on",
    "dcd-add 3 99 0 64M": "host 99: the device has 16, from 0 on",
    "dcd-add 3 0 9 64M": "region 9: the device has 2, from 0 on",
    "dcd-add 3 0 1 64M": "name a tag: hosts can share extents of region 1",
    "dcd-set 3 0 3": "blocks of 0x3 bytes: take 64 bytes times a power of two",
    "send 5100 00": "invalid payload length: identify switch: 1 bytes",
    "send 5100 --cci": "opcode 0x5100 is not for messages of this type",
    "send 4100 00 --port 3 --ld 0": "invalid payload length: get partition info: 1 bytes",
    "send 4100 00 --port 3 --ld 99": "LD 99: mld3 has 16, from 0 on",
    "send 5500 --port 3": "unsupported: opcode 0x5500",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NUPA_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def site(folder: Path) -> Iterator[Site]:
    """A server of the default fabric: two hosts, a device at port 2, an MLD at 3."""
    site = Site(2, [STEP], [4 * STEP], dynamic_bytes=2 * STEP)
    with Server(site.manager, path_of("default")).start():
        yield site
    assert list(folder.iterdir()) == []


@pytest.fixture
def nupa_fails(nupa: Nupa) -> Run:
    return partial(nupa.fails, code=(1, 2))


def test_devices_are_listed_bound_and_unbound(site: Site, nupa: Run) -> None:
    assert nupa("bind", "0", "1", "2") == ""
    assert "2     downstream  SLD     x16" in nupa("ls")
    found = json.loads(nupa("ls", "--json"))
    assert found["ports"][2]["device"] == "SLD"
    assert found["virtual_switches"][0]["vppbs"][1] == {
        "vppb": 1,
        "status": "port",
        "port": 2,
        "ld": None,
    }
    assert nupa("unbind", "0", "1", "--how", "surprise") == ""
    assert site.switch.bindings == []


def test_logical_devices_get_memory_and_are_bound(site: Site, nupa: Run) -> None:
    nupa("alloc", "3", "0", "512M", "256M")
    nupa("bind", "1", "0", "3", "--ld", "1")
    found = json.loads(nupa("lds", "3", "--json"))
    assert found["lds"][:3] == [2 * STEP, STEP, 0]
    assert "256 MiB of 1024 MiB are free" in nupa("lds", "3")
    assert [(v, b, x.port.number, x.ld) for v, b, x in site.switch.bindings] == [(1, 0, 3, 1)]


def test_a_port_is_held_in_reset_and_released(site: Site, nupa: Run) -> None:
    nupa("port", "2", "hold")
    assert site.switch.port(2).in_reset
    assert "reset" in nupa("ls")
    nupa("port", "2", "release")
    nupa("port", "2", "reset")
    assert site.switch.port(2).up


def test_dynamic_capacity_is_given_shared_and_taken_back(
    site: Site, nupa: Run, nupa_fails: Run
) -> None:
    tag = "0f3a0000-0000-0000-0000-000000000001"
    nupa("dcd-add", "3", "0", "0", "64M")
    nupa("dcd-add", "3", "0", "1", "32M", "--tag", tag)
    nupa("dcd-add", "3", "1", "1", "--tag", tag)
    hosts = json.loads(nupa("dcd-ls", "3", "--json"))["hosts"]
    shared = {"dpa": 5 * STEP, "size": 32 << 20, "tag": tag, "sequence": 1}
    assert hosts[0]["extents"][1] == hosts[1]["extents"][0] == shared
    assert f"1     0x50000000  32 MiB  {tag}" in nupa("dcd-ls", "3")
    nupa("dcd-release", "3", "0")
    nupa("dcd-release", "3", "0", "--tag", tag)
    nupa("dcd-release", "3", "1", "--tag", tag, "--force")
    assert not any(host.accepted for host in site.switch.mld(3).dynamic.hosts)
    assert f"host 0 has no tag {UUID(int=0)}" in nupa_fails("dcd-release", "3", "0")
    assert nupa_fails("dcd-add", "3", "0", "0", "257G") == (
        "nupa: resources exhausted: 0x4040000000 bytes, and 0x10000000 of region 0 are free\n"
    )
    assert "--help" in nupa_fails("dcd-add", "3", "0", "0", "1M", "--tag", "x")


def test_a_refusal_names_the_reason_of_the_model(site: Site, nupa: Run, nupa_fails: Run) -> None:
    nupa("bind", "0", "1", "2")
    for line, reason in REASONS.items():
        assert nupa_fails(*line.split()) == f"nupa: {reason}\n", line
    assert len(site.switch.bindings) == 1
    nupa("unbind", "0", "1", "--how", "managed")
    nupa("abort")


@pytest.mark.parametrize(
    "argv",
    [
        ("bind", "0", "1", "255"),
        ("bind", "x", "1", "2"),
        ("alloc", "3", "0", "100M"),
        ("alloc", "3", "0", "1"),
        ("port", "2", "off"),
    ],
)
def test_a_number_out_of_range_is_a_wrong_command_line(nupa_fails: Run, argv: tuple[str]) -> None:
    assert "--help" in nupa_fails(*argv)


def test_without_a_server_the_error_says_how_to_start_one(folder: Path, nupa_fails: Run) -> None:
    assert "nupa fm serve" in nupa_fails("ls")
    assert list(folder.iterdir()) == []


@contextmanager
def served(*args: str, topology: Topology | None = None) -> Iterator[subprocess.Popen[str]]:
    """Yields `nupa fm serve` of the default fabric, two hosts, after its first line."""
    with Fabric.create("default", topology or star(2)):
        pass
    server = subprocess.Popen(
        [sys.executable, "-m", "nupa.cli", "fm", "serve", *args], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    with server.stdout:
        assert "2 virtual switches" in server.stdout.readline()
        yield server
    Fabric.remove("default")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_server_of_a_fabric_leaves_nothing_however_it_is_ended(
    folder: Path, nupa: Run, number: signal.Signals
) -> None:
    with served("--sld", "256M") as server:
        nupa("bind", "0", "0", "2")
        server.send_signal(number)
        assert server.wait(30) == 0
    assert list(folder.iterdir()) == []


def use_what_was_given(nupa: Run) -> None:
    """Use the regions of the hosts; all that keeps the fabric is gone at the end."""
    with Fabric.open("default") as fabric:
        regions = {region.tag: region for region in fabric.pool.regions()}
        assert sorted(regions) == ["host0:0x1000000000", "host1:0x1000000000"]
        with (
            fabric.host("host0").map(regions["host0:0x1000000000"]) as sld,
            fabric.host("host1").map(regions["host1:0x1000000000"]) as ld,
        ):
            sld[0:4] = b"host"
            ld[0:4] = b"LD 5"
            nupa("unbind", "0", "0")
            assert sld.revoked
            assert sld[0:4] == b"\xff" * 4
            assert ld[0:4] == b"LD 5"
        assert [region.tag for region in fabric.pool.regions()] == ["host1:0x1000000000"]


def test_a_bound_device_is_a_region_that_other_processes_map(folder: Path, nupa: Run) -> None:
    with served("--sld", "256M", "--mld", "256M") as server:
        nupa("bind", "0", "0", "2")
        nupa("alloc", "3", "5", "256M")
        nupa("bind", "1", "1", "3", "--ld", "5")
        use_what_was_given(nupa)
        server.terminate()
        assert server.wait(30) == 0
    assert list(folder.iterdir()) == []


def window_of(fabric: Fabric, host: str) -> Window:
    return fabric.host(host).map(fabric.pool.find(f"{host}:0x1000000000"))


def test_the_default_devices_are_published_in_a_default_fabric(folder: Path, nupa: Run) -> None:
    with served() as server:
        nupa("bind", "0", "0", "2")
        with Fabric.open("default") as fabric:
            assert [each.tag for each in fabric.pool.regions()] == ["host0:0x1000000000"]
        server.terminate()
        assert server.wait(30) == 0
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("hosts", [1, 2, 9, 24])
def test_the_default_pool_has_room_for_the_default_devices(hosts: int) -> None:
    with Fabric(hosts=hosts) as fabric:
        assert fabric.switch.is_published
        with fabric.pool.alloc(1 << 20):
            assert fabric.pool.quota(0).used


def lose_a_port(nupa: Run) -> None:
    with Fabric.open("default") as fabric:
        with window_of(fabric, "host0") as mine, window_of(fabric, "host1") as other:
            mine[0:4] = other[0:4] = b"data"
            assert main(["port", "host0", "down"]) == 0
            assert (mine[0:4], other[0:4]) == (b"\xff" * 4, b"data")
            assert "0     upstream    -       down" in nupa("ls")
            assert "1     upstream    -       x16" in nupa("ls")
            assert [each.tag for each in fabric.pool.regions()] == ["host1:0x1000000000"]
            assert main(["port", "host0", "up"]) == 0
            assert "0     upstream    -       x16" in nupa("ls")
            assert mine.revoked
        with window_of(fabric, "host0") as again:
            assert again[0:4] == b"data"


def lose_a_trunk() -> None:
    with Fabric.open("default") as fabric:
        for port in ("near-far", "far-near"):
            with window_of(fabric, "host0") as one, window_of(fabric, "host1") as two:
                assert main(["port", port, "down"]) == 0
                assert one[0:4] == two[0:4] == b"\xff" * 4
                assert list(fabric.pool.regions()) == []
                assert main(["port", port, "up"]) == 0


def test_a_port_that_goes_down_takes_what_its_host_was_given(folder: Path, nupa: Run) -> None:
    with served("--sld", "256M", "--sld", "256M") as server:
        nupa("bind", "0", "0", "2")
        nupa("bind", "1", "0", "3")
        lose_a_port(nupa)
        server.terminate()
        assert server.wait(30) == 0
    assert list(folder.iterdir()) == []


def test_a_trunk_that_goes_down_takes_the_devices_behind_it(folder: Path, nupa: Run) -> None:
    switches = (SwitchConfig("near", 8), SwitchConfig("far", 8))
    hosts = (HostConfig("host0", "near"), HostConfig("host1", "far"))
    topology = Topology("default", switches, hosts, (TrunkConfig(("near", "far")),))
    with served("--sld", "256M", "--sld", "256M", topology=topology) as server:
        nupa("bind", "0", "0", "3")  # at the switch of host1
        nupa("bind", "1", "0", "2")
        lose_a_trunk()
        server.terminate()
        assert server.wait(30) == 0
    assert list(folder.iterdir()) == []


def test_a_pool_without_room_for_all_devices_is_told_of(folder: Path) -> None:
    with Fabric.create("default", star(2)):
        pass
    server = subprocess.Popen(
        [sys.executable, "-m", "nupa.cli", "fm", "serve", "--sld", "4G"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    with server.stderr:
        assert "no room for 4096 MiB" in server.stderr.readline()
        server.terminate()
        assert server.wait(30) == 0
    Fabric.remove("default")
    assert list(folder.iterdir()) == []


def test_a_server_that_was_killed_leaves_nothing_once_its_fabric_goes(folder: Path) -> None:
    with served() as server:
        server.kill()
        server.wait(30)
        assert path_of("default").is_socket()
    assert list(folder.iterdir()) == []
