# SPDX-License-Identifier: BSD-3-Clause
"""The topology of a machine: guests, their shared memory, how they see it; TOML or defaults.

kind = "cxl"               # how guests see the memory: "cxl" or "ivshmem" (a PCI device)
memory = "256M"            # its exact size
coherence = "hardware"     # or "software": flush and invalidate instead of atomics

[guests]
count = 2                  # host0, host1; the machine itself is the next host
ram = "1G"                 # of each, besides the shared memory
network = true             # each has a virtio-net interface, on a network of their own

[cxl]                      # kind "cxl" only
window = "4G"              # physical addresses for memory devices
root_ports = 2
downstream_ports = 2       # of the switch behind the first root port

[ivshmem]                  # kind "ivshmem" only
doorbell = false           # wake a sleeping guest by an interrupt

[[nic]]                    # interfaces that lead out of the machine (nupa/vm/files/nic.py)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nupa.base.errors import LocalError
from nupa.base.quantity import byte_count, say_bytes
from nupa.topology import toml_table
from nupa.topology.toml_table import Table
from nupa.topology.topology import TopologyError
from nupa.vm.files import nic as nic_file
from nupa.vm.files.nic import NICS_MAX, Nic

KINDS = ("cxl", "ivshmem")
COHERENCES = ("hardware", "software")
GUESTS_MAX = 16
PORTS_MAX = 8

MIB = 1 << 20
#: CXL 3.1, 8.2.4.20.2: decoders count in steps of 256 MiB.
CXL_STEP_BYTES = 256 * MIB
#: The least that holds a fabric with all its tables.
IVSHMEM_MIN_BYTES = 64 * MIB
MEMORY_MAX_BYTES = 64 << 30
RAM_MIN_BYTES = 256 * MIB
RAM_MAX_BYTES = 64 << 30


@dataclass(frozen=True)
class Guests:
    count: int = 2
    ram_bytes: int = 1 << 30
    network: bool = True


@dataclass(frozen=True)
class Cxl:
    """The tree from the host bridge to the memory device."""

    window_bytes: int = 4 << 30
    root_ports: int = 2
    downstream_ports: int = 2


@dataclass(frozen=True)
class Ivshmem:
    doorbell: bool = False


@dataclass(frozen=True)
class MachineTopology:
    """A topology.  TopologyError: values are out of range or contradict each other."""

    kind: str = "cxl"
    memory_bytes: int = CXL_STEP_BYTES
    coherence: str = "hardware"
    guests: Guests = field(default_factory=Guests)
    cxl: Cxl = field(default_factory=Cxl)
    ivshmem: Ivshmem = field(default_factory=Ivshmem)
    nics: tuple[Nic, ...] = ()

    def __post_init__(self) -> None:
        _one_of("kind", self.kind, KINDS)
        _one_of("coherence", self.coherence, COHERENCES)
        _in_range("count", self.guests.count, 1, GUESTS_MAX)
        _size_in_range("ram", self.guests.ram_bytes, RAM_MIN_BYTES, RAM_MAX_BYTES)
        _in_range("root_ports", self.cxl.root_ports, 1, PORTS_MAX)
        _in_range("downstream_ports", self.cxl.downstream_ports, 1, PORTS_MAX)
        if self.ivshmem.doorbell and (self.kind, self.coherence) != ("ivshmem", "hardware"):
            raise TopologyError(
                f"a doorbell needs kind ivshmem with coherence hardware, and these are {self.kind} "
                f"and {self.coherence}: guests poll there"
            )
        if self.kind == "cxl":
            self._check_cxl()
        else:
            self._check_ivshmem()
        for nic in self.nics:
            if nic.guest not in self.hosts:
                raise TopologyError(
                    f"a nic is of {nic.guest!r}: the guests are {', '.join(self.hosts)}"
                )
        for host in self.hosts:
            if len(self.nics_of(host)) > NICS_MAX:
                raise TopologyError(f"{host} has more than {NICS_MAX} nics")

    def _check_cxl(self) -> None:
        """Checks that sizes are multiples of the decoders' step, and that the window has room."""
        for key, size in (("memory", self.memory_bytes), ("window", self.cxl.window_bytes)):
            _size_in_range(key, size, CXL_STEP_BYTES, MEMORY_MAX_BYTES)
            if size % CXL_STEP_BYTES:
                raise TopologyError(
                    f"`{key}` is {say_bytes(size)}: CXL decodes multiples of "
                    f"{say_bytes(CXL_STEP_BYTES)}, as {say_bytes(_up(size))}"
                )
        if self.memory_bytes > self.cxl.window_bytes:
            raise TopologyError(
                f"`memory` is {say_bytes(self.memory_bytes)}, and the `window` of [cxl] has only "
                f"{say_bytes(self.cxl.window_bytes)}: make the window as large"
            )

    def _check_ivshmem(self) -> None:
        size = self.memory_bytes
        _size_in_range("memory", size, IVSHMEM_MIN_BYTES, MEMORY_MAX_BYTES)
        if size & (size - 1):
            raise TopologyError(
                f"`memory` is {say_bytes(size)}: an ivshmem device has a power of two, "
                f"as {say_bytes(1 << size.bit_length())}"
            )

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the guests, which are the first hosts of the fabric."""
        return tuple(f"host{i}" for i in range(self.guests.count))

    def nics_of(self, host: str) -> tuple[Nic, ...]:
        """Returns the interfaces of one guest."""
        return tuple(nic for nic in self.nics if nic.guest == host)

    @property
    def machine_host(self) -> str:
        """The host that is the machine itself: the last one of the fabric."""
        return f"host{self.guests.count}"


def load(path: Path) -> MachineTopology:
    """Parses a file.  TopologyError names file, line, table and key."""
    return parse(toml_table.read(path), str(path))


def parse(data: bytes, source: str) -> MachineTopology:
    """Parses TOML; *source* begins each message."""
    top = toml_table.document(data, source)
    try:
        return _topology(top)
    except TopologyError as error:
        raise TopologyError(f"{source}: {error}") from error


def changed(
    topology: MachineTopology,
    *,
    kind: str | None = None,
    memory_bytes: int | None = None,
    coherence: str | None = None,
    guests: int | None = None,
    doorbell: bool = False,
    nics: Sequence[Nic] = (),
) -> MachineTopology:
    """Returns *topology* with the given changes.  TopologyError as for MachineTopology."""
    return replace(
        topology,
        kind=kind or topology.kind,
        memory_bytes=topology.memory_bytes if memory_bytes is None else memory_bytes,
        coherence=coherence or topology.coherence,
        guests=topology.guests if guests is None else replace(topology.guests, count=guests),
        ivshmem=Ivshmem(doorbell or topology.ivshmem.doorbell),
        nics=(*topology.nics, *nics),
    )


def _topology(top: Table) -> MachineTopology:
    default = MachineTopology()
    guests, cxl, ivshmem = top.table("guests"), top.table("cxl"), top.table("ivshmem")
    found = {
        "kind": top.text("kind", default.kind),
        "memory_bytes": _size(top, "memory", default.memory_bytes),
        "coherence": top.text("coherence", default.coherence),
    }
    made = replace(
        default,
        **found,  # type: ignore[arg-type]
        guests=Guests(
            _number(guests, "count", default.guests.count),
            _size(guests, "ram", default.guests.ram_bytes),
            bool(guests.get("network", bool, default.guests.network)),
        ),
        cxl=Cxl(
            _size(cxl, "window", default.cxl.window_bytes),
            _number(cxl, "root_ports", default.cxl.root_ports),
            _number(cxl, "downstream_ports", default.cxl.downstream_ports),
        ),
        ivshmem=Ivshmem(bool(ivshmem.get("doorbell", bool, default.ivshmem.doorbell))),
        nics=tuple(nic_file.of_table(table) for table in top.tables("nic")),
    )
    for table in (top, guests, cxl, ivshmem):
        table.done()
    return made


def _number(table: Table, key: str, default: int) -> int:
    return int(table.get(key, int, default))


def _size(table: Table, key: str, default: int) -> int:
    """Parses a whole number of bytes, or text with a unit."""
    value = table.any(key, default)
    if type(value) is int:
        return value
    if isinstance(value, str):
        try:
            return byte_count(value)
        except LocalError as error:
            raise TopologyError(f"{table.title}: `{key}`: {error}") from error
    raise TopologyError(f'{table.title}: `{key}` is {value!r}: write a size, as "256M"')


def _one_of(key: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise TopologyError(f"`{key}` is {value!r}: choose one of {', '.join(known)}")


def _in_range(key: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise TopologyError(f"`{key}` is {value}: choose {low} to {high}")


def _size_in_range(key: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise TopologyError(
            f"`{key}` is {say_bytes(value)}: choose {say_bytes(low)} to {say_bytes(high)}"
        )


def _up(size: int) -> int:
    """Rounds up to a multiple of CXL_STEP_BYTES."""
    return -(-size // CXL_STEP_BYTES) * CXL_STEP_BYTES
