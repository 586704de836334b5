# SPDX-License-Identifier: BSD-3-Clause
"""QEMU's command line for one guest: the devices that the topology asks for."""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from nupa.base.errors import LocalError
from nupa.base.quantity import say_bytes
from nupa.vm.boot.boot import BootFiles, kernel_arguments
from nupa.vm.files.nic import Nic, mac_of
from nupa.vm.files.place import AGENT_PORTS, MachineFolder
from nupa.vm.files.topology import MachineTopology

#: The first QEMU that maps a CXL window as RAM; older ones emulate each access (MMIO).
CXL_AS_RAM = (11,)
#: The first QEMU with volatile CXL memory.
_VOLATILE_CXL = (8, 1)
#: How many processors a guest has, for kernels that look for races: 1 or 2.
CPUS_VARIABLE = "NUPA_VM_CPUS"
_RECONNECT_MS = (9, 2)
_RECONNECT_S = (8, 0)
_FAST_STOSB = (8, 0)  # the first with "fsrs", which its processor `max` has
#: In an older QEMU, a client of `-netdev stream` does not reconnect to its server.
NETWORK_HEALS = _RECONNECT_S
#: The tag of the machine's own file system (csrc/guest).
ROOT_TAG = "nupa-root"
_CXL_BUS_NR = 12  # any number that q35 does not use
_HUB = 0


class Shared(NamedTuple):
    """The memory that guests share: the fabric's segment."""

    path: str
    size_bytes: int


class QemuOption(NamedTuple):
    """An option of QEMU: `-device virtio-rng-pci,bus=pcie.0`."""

    name: str
    kind: str
    values: tuple[tuple[str, str], ...] = ()

    def words(self) -> list[str]:
        # A comma in a value is written twice (qemu(1), "Conventions").
        parts = [f"{key}={value.replace(',', ',,')}" for key, value in self.values]
        return [self.name, ",".join([self.kind, *parts] if self.kind else parts)]


def _option(name: str, kind: str, /, **values: object) -> QemuOption:
    return QemuOption(name, kind, tuple((key, str(value)) for key, value in values.items()))


def _device(driver: str, /, **values: object) -> QemuOption:
    return _option("-device", driver, **values)


def check_version(topology: MachineTopology, version: tuple[int, ...]) -> None:
    """Raises LocalError if this QEMU has no volatile CXL memory, or loses updates in it."""
    if topology.kind != "cxl" or version >= CXL_AS_RAM:
        return
    name = ".".join(map(str, version))
    if version < _VOLATILE_CXL:
        raise LocalError(
            f"QEMU {name} has no volatile CXL memory, QEMU {_VOLATILE_CXL[0]}.{_VOLATILE_CXL[1]} "
            f"is the first: take QEMU {CXL_AS_RAM[0]} or later (--qemu), or --kind ivshmem",
            errno.EOPNOTSUPP,
        )
    if topology.coherence != "software":
        raise LocalError(
            f"QEMU {name} emulates each access to CXL memory (MMIO): atomics between guests lose "
            f"updates there.  Take QEMU {CXL_AS_RAM[0]} or later (--qemu), or --kind ivshmem, "
            f"or --coherence software, which does without atomics",
            errno.EOPNOTSUPP,
        )


def argv(
    boot: BootFiles, topology: MachineTopology, place: MachineFolder, shared: Shared, number: int
) -> tuple[str, ...]:
    """Returns all words of the command that runs guest *number*."""
    host = topology.hosts[number]
    options = [
        *_machine(boot, topology, place, shared, host),
        *(_cxl(topology, shared) if topology.kind == "cxl" else _ivshmem(topology, place, shared)),
        *_devices(place, host),
    ]
    if topology.guests.network:
        options += _network(boot.qemu_version, topology, place, number)
    for index, nic in enumerate(topology.nics_of(host)):
        options += _nic(boot.qemu_version, nic, number, index)
    words = [word for option in options for word in option.words() if word]
    return (*boot.qemu, *words)


def _machine(
    boot: BootFiles, topology: MachineTopology, place: MachineFolder, shared: Shared, host: str
) -> list[QemuOption]:
    machine = _option("-machine", "q35")
    if topology.kind == "cxl":
        machine = QemuOption(
            "-machine",
            "q35",
            (
                ("cxl", "on"),
                ("cxl-fmw.0.targets.0", "cxl.0"),
                ("cxl-fmw.0.size", _size(topology.cxl.window_bytes)),
            ),
        )
    return [
        _option("-name", f"nupa-{place.name}-{host}"),
        QemuOption("-nodefaults", ""),
        QemuOption("-no-user-config", ""),
        QemuOption("-no-reboot", ""),
        _option("-display", "none"),
        machine,
        # One thread for each vCPU.  With maxcpus=1, QEMU would generate code whose atomics do not
        # work between processes.
        _option("-accel", "tcg", thread="multi"),
        _option("-smp", _cpus(), maxcpus=2),
        _processor(boot.qemu_version),
        _option("-m", _size(topology.guests.ram_bytes)),
        QemuOption("-kernel", str(boot.kernel)),
        QemuOption("-initrd", str(boot.initramfs)),
        QemuOption("-append", " ".join(_kernel_words(topology, shared, host))),
        QemuOption("-pidfile", place.pid_file(host)),
        _option("-chardev", "file", id="console", path=place.log(host), append="on"),
        _option("-serial", "chardev:console"),
    ]


def _processor(version: tuple[int, ...]) -> QemuOption:
    """Returns a processor without fast string instructions.

    A guest that sees them copies by "rep movsb" and clears by "rep stosb", which emulation executes
    byte by byte: a tenth of the rate of other instructions.  One that sees a hypervisor refuses to
    commit a CXL region.
    """
    absent = ["hypervisor", "erms", "fsrm"]
    if version >= _FAST_STOSB:
        absent.append("fsrs")
    return QemuOption("-cpu", "max", tuple((feature, "off") for feature in absent))


def _cpus() -> str:
    cpus = os.environ.get(CPUS_VARIABLE, "1")
    if cpus not in {"1", "2"}:
        raise LocalError(f"{CPUS_VARIABLE}={cpus}: a guest has 1 or 2 processors", errno.EINVAL)
    return cpus


def _kernel_words(topology: MachineTopology, shared: Shared, host: str) -> list[str]:
    words = [kernel_arguments(host, topology.kind, shared.size_bytes)]
    if topology.guests.network:
        named = ",".join(f"{address_of(i)}:{name}" for i, name in enumerate(topology.hosts))
        words.append(f"nupa.hosts={named}")
    if topology.ivshmem.doorbell:
        # VFIO drives the doorbell's device; other devices need no address translation.
        words.append("intel_iommu=on iommu=pt")
    return words


def address_of(number: int) -> str:
    """Returns the address of guest *number* on the guests' own network."""
    return f"192.168.77.{number + 1}"


def _cxl(topology: MachineTopology, shared: Shared) -> list[QemuOption]:
    """Returns host bridge, root ports, a switch at the first, the memory at its first port."""
    ports = topology.cxl
    options = [
        _memory("shared", shared),
        _device("pxb-cxl", id="cxl.0", bus="pcie.0", bus_nr=_CXL_BUS_NR),
    ]
    for port in range(ports.root_ports):
        options.append(
            _device("cxl-rp", id=f"rp{port}", bus="cxl.0", port=port, chassis=0, slot=port)
        )
    options.append(_device("cxl-upstream", id="us0", bus="rp0"))
    for port in range(ports.downstream_ports):
        slot = ports.root_ports + port
        options.append(
            _device("cxl-downstream", id=f"ds{port}", bus="us0", port=port, chassis=0, slot=slot)
        )
    options.append(_device("cxl-type3", id="memory0", bus="ds0", **{"volatile-memdev": "shared"}))
    return options


def _ivshmem(topology: MachineTopology, place: MachineFolder, shared: Shared) -> list[QemuOption]:
    """Returns a PCI device whose BAR 2 is the memory; a doorbell's server provides the memory."""
    if not topology.ivshmem.doorbell:
        return [
            _memory("shared", shared),
            _device("ivshmem-plain", id="memory0", bus="pcie.0", memdev="shared"),
        ]
    return [
        # VFIO delivers the interrupt in guests; Debian's kernel has VFIO with an IOMMU only.
        _device("intel-iommu", intremap="off"),
        _option("-chardev", "socket", id="bell", path=place.bell_socket),
        _device("ivshmem-doorbell", id="memory0", bus="pcie.0", vectors=1, chardev="bell"),
    ]


def _memory(name: str, shared: Shared) -> QemuOption:
    return _option(
        "-object",
        "memory-backend-file",
        id=name,
        share="on",
        size=shared.size_bytes,
        **{"mem-path": shared.path},
    )


def _devices(place: MachineFolder, host: str) -> list[QemuOption]:
    """Returns devices for the machine's files, entropy, and the ports of the agent."""
    options = [
        _option(
            "-fsdev",
            "local",
            id="root",
            path="/",
            security_model="none",
            readonly="on",
            multidevs="remap",
        ),
        _device("virtio-9p-pci", bus="pcie.0", fsdev="root", mount_tag=ROOT_TAG),
        _device("virtio-rng-pci", bus="pcie.0"),
        _device("virtio-serial-pci", id="agents", bus="pcie.0", max_ports=AGENT_PORTS + 1),
    ]
    for port in range(AGENT_PORTS):
        path = place.socket(host, port)
        options += [
            _option("-chardev", "socket", id=f"agent{port}", path=path, server="on", wait="off"),
            # Port 0 is for a console.
            _device(
                "virtserialport",
                bus="agents.0",
                nr=port + 1,
                chardev=f"agent{port}",
                name=f"nupa.{port}",
            ),
        ]
    return options


def _network(
    version: tuple[int, ...], topology: MachineTopology, place: MachineFolder, number: int
) -> list[QemuOption]:
    """Makes host0 listen, with a hub if there are more than two, and the others connect."""
    peers = range(1, topology.guests.count)
    nic = _device(
        "virtio-net-pci", bus="pcie.0", netdev="net0", mac=f"52:54:00:77:00:{number + 1:02x}"
    )
    if number:
        stream = _stream("net0", place.net_socket(number), server="off")
        return [stream._replace(values=stream.values + _reconnect(version)), nic]
    if len(peers) <= 1:
        return [_stream("net0", place.net_socket(1), server="on"), nic]
    hub = [_option("-netdev", "hubport", id="net0", hubid=_HUB)]
    for peer in peers:
        hub += [
            _stream(f"to{peer}", place.net_socket(peer), server="on"),
            _option("-netdev", "hubport", id=f"hub{peer}", hubid=_HUB, netdev=f"to{peer}"),
        ]
    return [*hub, nic]


def _nic(version: tuple[int, ...], nic: Nic, number: int, index: int) -> list[QemuOption]:
    """Returns one of the interfaces that lead out of the machine."""
    name = f"nic{index}"
    if nic.medium == "stream":
        netdev = _stream(name, nic.to, server="off")
        netdev = netdev._replace(values=netdev.values + _reconnect(version))
    elif nic.medium == "tap":
        netdev = _option(
            "-netdev", "tap", id=name, ifname=nic.to, script="no", downscript="no", vhost="off"
        )
    else:
        forwarded = tuple(("hostfwd", f"tcp:127.0.0.1:{port}-:{port}") for port in nic.ports)
        netdev = QemuOption("-netdev", "user", (("id", name), ("ipv6", "off"), *forwarded))
    device = _device(
        "virtio-net-pci",
        bus="pcie.0",
        netdev=name,
        mac=mac_of(number, index),
        host_mtu=nic.mtu,
    )
    return [netdev, device]


def _stream(name: str, path: str, *, server: str) -> QemuOption:
    address = (("addr.type", "unix"), ("addr.path", path))
    return QemuOption("-netdev", "stream", (("id", name), ("server", server), *address))


def _reconnect(version: tuple[int, ...]) -> tuple[tuple[str, str], ...]:
    """Returns the option by which a guest reconnects to host0 after that starts again."""
    if version >= _RECONNECT_MS:
        return (("reconnect-ms", "500"),)
    return (("reconnect", "1"),) if version >= _RECONNECT_S else ()


def _size(size_bytes: int) -> str:
    """Formats 268435456 as QEMU parses it: '256M'."""
    return say_bytes(size_bytes).removesuffix("iB")
