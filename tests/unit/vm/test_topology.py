# SPDX-License-Identifier: BSD-3-Clause
"""Topologies of machines: defaults, TOML, what is refused, and QEMU's words that follow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nupa.fabric import LocalError, TopologyError
from nupa.vm.boot.boot import BootFiles
from nupa.vm.files.place import MachineFolder
from nupa.vm.files.topology import (
    GUESTS_MAX,
    Cxl,
    Guests,
    Ivshmem,
    MachineTopology,
    changed,
    load,
    parse,
)
from nupa.vm.machine import qemu
from nupa.vm.machine.qemu import Shared

EXAMPLES = Path(__file__).parents[3] / "qemu"
MIB = 1 << 20
BOOT = BootFiles(
    ("/ld.so", "/qemu"), (11, 1, 3), Path("/boot/kernel"), Path("/boot/initramfs"), "6.12"
)
PLACE = MachineFolder("vm", "/run/user/1/nupa-vm-vm")


def words(topology: MachineTopology, number: int = 0, boot: BootFiles = BOOT) -> list[str]:
    shared = Shared("/dev/shm/nupa-1-vm", topology.memory_bytes)
    return list(qemu.argv(boot, topology, PLACE, shared, number))


def devices(topology: MachineTopology, driver: str, number: int = 0) -> list[str]:
    return [word for word in words(topology, number) if word.split(",")[0] == driver]


def test_the_example_is_what_vm_up_makes_without_options() -> None:
    assert load(EXAMPLES / "two_hosts.toml") == MachineTopology()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: str(path.stem))
def test_every_example_makes_guests(path: Path) -> None:
    topology = load(path)
    for number in range(topology.guests.count):
        assert f"nupa.host=host{number}" in " ".join(words(topology, number))


def test_an_empty_file_means_the_defaults() -> None:
    assert parse(b"", "x.toml") == MachineTopology()


def test_every_key_is_read() -> None:
    text = b"""
        kind = "ivshmem"
        memory = "128M"
        [guests]
        count = 3
        ram = 536870912
        network = false
        [cxl]
        window = "1G"
        root_ports = 1
        downstream_ports = 4
        [ivshmem]
        doorbell = true
    """
    made = parse(text, "x.toml")
    assert (made.kind, made.memory_bytes) == ("ivshmem", 128 * MIB)
    assert made.guests == Guests(3, 512 * MIB, False)
    assert made.cxl == Cxl(1024 * MIB, 1, 4)
    assert made.ivshmem == Ivshmem(True)
    assert parse(b'coherence = "software"', "x.toml").coherence == "software"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('kind = "pmem"', "`kind` is 'pmem': choose one of cxl, ivshmem"),
        ('coherence = "none"', "`coherence` is 'none': choose one of hardware, software"),
        ('memory = "300M"', "CXL decodes multiples of 256MiB, as 512MiB"),
        ('memory = "0"', "`memory` is 0B: choose 256MiB to 64GiB"),
        ('memory = "8G"', "the `window` of [cxl] has only 4G"),
        ('memory = "big"', "`memory`: 'big' is not a size: write it as 4096, 64K, 512M or 1G"),
        ("memory = true", "`memory` is True: write a size"),
        ('kind = "ivshmem"\nmemory = "192M"', "has a power of two, as 256MiB"),
        ('kind = "ivshmem"\nmemory = "1M"', "`memory` is 1MiB: choose 64MiB"),
        ("[guests]\ncount = 0", f"`count` is 0: choose 1 to {GUESTS_MAX}"),
        (f"[guests]\ncount = {GUESTS_MAX + 1}", f"choose 1 to {GUESTS_MAX}"),
        ('[guests]\ncount = "2"', "[guests]: `count` is '2', not a whole number"),
        ('[guests]\nram = "8M"', "`ram` is 8MiB: choose 256MiB to 64GiB"),
        ("[guests]\nnetwork = 1", "[guests]: `network` is 1, not true or false"),
        ("[cxl]\nroot_ports = 9", "`root_ports` is 9: choose 1 to 8"),
        ("[cxl]\ndownstream_ports = 0", "`downstream_ports` is 0: choose 1 to 8"),
        ('[cxl]\nwindow = "100M"', "`window` is 100MiB: choose 256MiB"),
        ("[cxl]\nports = 9", "[cxl]: there is no key `ports`; the keys are: window"),
        ("guest = 2", "the file: there is no key `guest`; the keys are: guests, cxl, ivshmem"),
        ("kind = ", "x.toml:1: "),
    ],
)
def test_what_is_wrong_is_said_with_file_key_and_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(TopologyError) as caught:
        parse(text.encode(), "x.toml")
    assert str(caught.value).startswith("x.toml:")
    assert said in str(caught.value)


def test_a_file_that_is_not_there_is_said() -> None:
    with pytest.raises(TopologyError, match=r"no\.toml: No such file"):
        load(Path("/nowhere/no.toml"))


def test_options_change_a_topology_and_are_checked_with_it() -> None:
    assert changed(MachineTopology(), guests=3, memory_bytes=512 * MIB).guests.count == 3
    assert changed(MachineTopology()) == MachineTopology()
    with pytest.raises(TopologyError, match="multiples of 256MiB"):
        changed(
            MachineTopology(kind="ivshmem", memory_bytes=64 * MIB),
            kind="cxl",
            memory_bytes=260 * MIB,
        )


def test_the_machine_is_the_host_after_its_guests() -> None:
    topology = MachineTopology(guests=Guests(3))
    assert topology.hosts == ("host0", "host1", "host2")
    assert topology.machine_host == "host3"


def test_qemu_is_started_as_the_boot_files_say() -> None:
    found = words(MachineTopology())
    assert found[:2] == ["/ld.so", "/qemu"]
    assert found[found.index("-kernel") + 1] == "/boot/kernel"
    assert found[found.index("-initrd") + 1] == "/boot/initramfs"
    assert "nupa.host=host0 nupa.kind=cxl nupa.bytes=268435456" in found[found.index("-append") + 1]
    assert found[found.index("-pidfile") + 1] == PLACE.pid_file("host0")


def test_the_cxl_tree_has_the_memory_behind_a_switch() -> None:
    topology = MachineTopology(cxl=Cxl(8 << 30, 3, 4))
    assert devices(topology, "q35") == ["q35,cxl=on,cxl-fmw.0.targets.0=cxl.0,cxl-fmw.0.size=8G"]
    assert len(devices(topology, "pxb-cxl")) == 1
    assert len(devices(topology, "cxl-rp")) == 3
    assert devices(topology, "cxl-upstream") == ["cxl-upstream,id=us0,bus=rp0"]
    assert len(devices(topology, "cxl-downstream")) == 4
    assert devices(topology, "cxl-type3") == ["cxl-type3,id=memory0,bus=ds0,volatile-memdev=shared"]
    assert devices(topology, "memory-backend-file") == [
        "memory-backend-file,id=shared,share=on,size=268435456,mem-path=/dev/shm/nupa-1-vm"
    ]
    ports = devices(topology, "cxl-rp") + devices(topology, "cxl-downstream")
    slots = [port.partition(",slot=")[2] for port in ports]
    assert len(set(slots)) == len(ports)


def test_ivshmem_is_a_device_without_a_tree() -> None:
    topology = MachineTopology(kind="ivshmem")
    assert devices(topology, "q35") == ["q35"]
    assert devices(topology, "ivshmem-plain") == [
        "ivshmem-plain,id=memory0,bus=pcie.0,memdev=shared"
    ]
    assert not [word for word in words(topology) if "cxl" in word and "kind=" not in word]


def test_every_port_of_the_agent_has_a_socket() -> None:
    found = devices(MachineTopology(), "virtserialport", 1)
    assert [word.partition("name=")[2] for word in found] == [f"nupa.{n}" for n in range(8)]
    sockets = [word for word in devices(MachineTopology(), "socket", 1) if "id=agent" in word]
    assert [PLACE.socket("host1", n) in sockets[n] for n in range(8)] == [True] * 8


def test_a_comma_in_a_path_is_doubled() -> None:
    place = MachineFolder("vm", "/run/a,b")
    found = qemu.argv(BOOT, MachineTopology(), place, Shared("/dev/shm/x,y", 256 * MIB), 0)
    assert [word for word in found if "mem-path=/dev/shm/x,,y" in word]
    assert [word for word in found if "path=/run/a,,b/host0.0.sock" in word]
    assert found[found.index("-pidfile") + 1] == "/run/a,b/host0.pid"


@pytest.mark.parametrize(
    ("version", "off"), [((7, 2, 0), "fsrm=off"), ((8, 0, 0), "fsrm=off,fsrs=off")]
)
def test_the_processor_has_no_fast_string_instructions(
    version: tuple[int, int, int], off: str
) -> None:
    ivshmem = MachineTopology(kind="ivshmem")
    found = words(ivshmem, boot=BOOT._replace(qemu_version=version))
    assert found[found.index("-cpu") + 1] == f"max,hypervisor=off,erms=off,{off}"


def test_a_guest_has_one_processor_or_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(qemu.CPUS_VARIABLE, raising=False)
    assert "1,maxcpus=2" in words(MachineTopology())
    monkeypatch.setenv(qemu.CPUS_VARIABLE, "2")
    assert "2,maxcpus=2" in words(MachineTopology())
    monkeypatch.setenv(qemu.CPUS_VARIABLE, "3")
    with pytest.raises(LocalError, match="1 or 2 processors"):
        words(MachineTopology())


def test_two_guests_are_joined_directly_and_more_by_a_hub() -> None:
    two, three = MachineTopology(), MachineTopology(guests=Guests(3))
    assert devices(two, "hubport") == devices(MachineTopology(guests=Guests(1)), "hubport") == []
    assert devices(two, "stream", 0) == [
        f"stream,id=net0,server=on,addr.type=unix,addr.path={PLACE.net_socket(1)}"
    ]
    assert f"addr.path={PLACE.net_socket(1)},reconnect-ms=500" in devices(two, "stream", 1)[0]
    assert len(devices(three, "hubport")) == 3
    assert len(devices(three, "stream", 0)) == 2
    assert PLACE.net_socket(2) in devices(three, "stream", 2)[0]
    macs = {devices(three, "virtio-net-pci", n)[0].partition("mac=")[2] for n in range(3)}
    assert len(macs) == 3
    named = "nupa.hosts=192.168.77.1:host0,192.168.77.2:host1,192.168.77.3:host2"
    for number in range(3):
        found = words(three, number)
        assert found[found.index("-append") + 1].endswith(named)
    alone = MachineTopology(guests=Guests(network=False))
    assert devices(alone, "virtio-net-pci") == []
    assert "nupa.hosts" not in " ".join(words(alone))


@pytest.mark.parametrize(
    ("version", "said"),
    [((11, 1, 3), "reconnect-ms=500"), ((8, 2, 0), "reconnect=1"), ((7, 2, 1), "")],
)
def test_reconnecting_is_asked_for_in_words_of_the_version(
    version: tuple[int, int, int], said: str
) -> None:
    found = words(MachineTopology(), 1, BOOT._replace(qemu_version=version))
    stream = next(word for word in found if word.startswith("stream,"))
    assert stream.partition("net.1.sock")[2].lstrip(",") == said


def test_an_old_qemu_is_refused_for_cxl_memory_that_loses_updates() -> None:
    with pytest.raises(LocalError, match=r"QEMU 9\.2 emulates each access.*--kind ivshmem"):
        qemu.check_version(MachineTopology(), (9, 2))
    # Measured with 10.0.13: 33982 of 40000 additions were left.
    with pytest.raises(LocalError, match=r"QEMU 10\.0\.13 emulates each access"):
        qemu.check_version(MachineTopology(), (10, 0, 13))
    qemu.check_version(MachineTopology(coherence="software"), (9, 2))
    with pytest.raises(LocalError, match=r"QEMU 7\.2 has no volatile CXL memory.*--kind ivshmem"):
        qemu.check_version(MachineTopology(coherence="software"), (7, 2))
    qemu.check_version(replace(MachineTopology(), kind="ivshmem"), (7, 2))
    qemu.check_version(MachineTopology(), (11, 0))
