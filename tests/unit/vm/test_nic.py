# SPDX-License-Identifier: BSD-3-Clause
"""Further interfaces of guests: the option, TOML, QEMU's words, the guest's commands, refusals."""

from __future__ import annotations

import pytest

from nupa.fabric import FabricError, TopologyError
from nupa.vm.files import nic
from nupa.vm.files.nic import NICS_MAX, Nic
from nupa.vm.files.topology import MachineTopology, changed, parse

from .test_topology import BOOT, words
from .world import SMALL, World

_FRAMES = "stream:/run/a.sock,address=10.1.0.2/24,address=fd00::2/64,mtu=4200,rxe,guest=host1"


def test_option_and_toml_mean_the_same() -> None:
    found = parse(
        b"""
        [[nic]]
        guest = "host1"
        medium = "stream"
        to = "/run/a.sock"
        address = "10.1.0.2/24,fd00::2/64"
        mtu = 4200
        rxe = true
        """,
        "x.toml",
    )
    assert found.nics == (nic.parse(_FRAMES),)
    assert changed(MachineTopology(), nics=found.nics) == found


def test_qemu_gets_each_medium_with_its_mtu_and_address() -> None:
    topology = changed(
        MachineTopology(),
        nics=[
            nic.parse("tap:tap0"),
            nic.parse("user:18515-18516"),
            nic.parse(_FRAMES),
        ],
    )
    first, second = " ".join(words(topology, 0)), " ".join(words(topology, 1))
    assert "tap,id=nic0,ifname=tap0,script=no,downscript=no,vhost=off" in first
    assert (
        "user,id=nic1,ipv6=off,hostfwd=tcp:127.0.0.1:18515-:18515,"
        "hostfwd=tcp:127.0.0.1:18516-:18516" in first
    )
    assert "netdev=nic1,mac=52:54:00:78:01:01,host_mtu=1500" in first
    assert "stream,id=nic0,server=off,addr.type=unix,addr.path=/run/a.sock,reconnect" in second
    assert "netdev=nic0,mac=52:54:00:78:00:02,host_mtu=4200" in second
    assert BOOT.qemu_version > (8, 0)


def test_the_guest_gets_addresses_and_soft_roce() -> None:
    commands = nic.set_up(1, (nic.parse("user:"), nic.parse(_FRAMES)))
    assert [command[4:] for command in commands] == [
        ("52:54:00:78:00:02", "", "10.0.2.15/24"),
        ("52:54:00:78:01:02", "rxe0", "10.1.0.2/24", "fd00::2/64"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bridge:br0", "medium"),
        ("tap:", "tap interface"),
        ("tap:" + "x" * 16, "tap interface"),
        ("stream:relative", "absolute"),
        ("stream:/" + "x" * 107, "107 bytes"),
        ("user:0", "TCP ports"),
        ("user:65536", "TCP ports"),
        ("user:1000-1064", "at most 64"),
        ("user:9-8", "TCP ports"),
        ("tap:t,mtu=67", "68 to 65521"),
        ("tap:t,mtu=65522", "68 to 65521"),
        ("tap:t,mtu=many", "no meaning"),
        ("tap:t,rxe=1", "no meaning"),
        ("tap:t,address=10.1.0.256", "10.1.0.2/24"),
    ],
)
def test_what_cannot_be_is_refused(text: str, said: str) -> None:
    with pytest.raises(TopologyError, match=said):
        nic.parse(text)


def test_limits_themselves_are_accepted() -> None:
    assert len(nic.parse("user:1000-1063").ports) == 64
    assert nic.parse("tap:" + "x" * 15 + ",mtu=68").mtu == 68
    assert nic.parse("stream:/" + "x" * 106 + ",mtu=65521").mtu == 65521


def test_nics_are_of_guests_and_eight_each() -> None:
    with pytest.raises(TopologyError, match="'host2'"):
        changed(MachineTopology(), nics=[Nic("host2", "tap", "t")])
    eight = [Nic("host0", "tap", f"t{number}") for number in range(NICS_MAX)]
    assert len(changed(MachineTopology(), nics=eight).nics_of("host0")) == NICS_MAX
    with pytest.raises(TopologyError, match="more than 8"):
        changed(MachineTopology(), nics=[*eight, Nic("host0", "tap", "t8")])


def test_a_failed_set_up_takes_the_machine_down_and_says_why(world: World) -> None:
    # The fake guest runs commands on this machine, where no interface has that address.
    with pytest.raises(FabricError, match="no interface has the address 52:54:00:78:00:01"):
        world.up(topology=changed(SMALL, nics=[Nic("host0", "tap", "t0")]))
    assert world.left() == []
