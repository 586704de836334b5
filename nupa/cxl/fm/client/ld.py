# SPDX-License-Identifier: BSD-3-Clause
"""Multi-logical devices from the manager's end: memory, QoS, registers, dynamic capacity (53xxh,
54xxh)."""

from __future__ import annotations

from collections.abc import Sequence
from errno import EINVAL
from functools import partial
from typing import NamedTuple

from nupa.base.errors import LocalError
from nupa.cxl.device.mld import GRANULARITIES
from nupa.cxl.fm import messages
from nupa.cxl.fm.client.dcd import DcdClient
from nupa.cxl.fm.client.requests import Requests
from nupa.cxl.fm.messages import FmOpcode


class LogicalDevices(NamedTuple):
    """The memory of one device: all of it, and that of each LD."""

    memory_bytes: int
    granularity_bytes: int
    lds: list[int]


class LdClient(Requests):
    """Commands of devices at the ports of a switch."""

    def logical_devices(self, port: int) -> LogicalDevices:
        """Returns the logical devices of the device at a port."""
        info = messages.LD_INFO.unpack(self.tunnel(port, FmOpcode.LD_INFO))
        answer = self.tunnel(port, FmOpcode.LD_ALLOCATIONS, bytes([0, 0xFF]))
        head = messages.ALLOCATION_HEAD.unpack(answer)
        (step,) = (size for size, code in GRANULARITIES.items() if code == head.granularity)
        rows = messages.ALLOCATION.unpack_all(answer, messages.ALLOCATION_HEAD.size, head.listed)
        return LogicalDevices(
            info.memory_bytes, step, [(row.steps + row.second) * step for row in rows]
        )

    def allocate(self, port: int, first: int, sizes: Sequence[int]) -> list[int]:
        """Allocates memory to LDs *first*…, in bytes; returns what they have then.  LocalError: a
        size is not a multiple of the granularity."""
        step = self.logical_devices(port).granularity_bytes
        if any(size % step or size < 0 for size in sizes):
            raise LocalError(f"memory of LDs comes in steps of {step >> 20} MiB", EINVAL)
        rows = (messages.ALLOCATION.pack(messages.Allocation(size // step, 0)) for size in sizes)
        payload = _bytes([len(sizes), first, 0, 0]) + b"".join(rows)
        answer = self.tunnel(port, FmOpcode.SET_LD_ALLOCATIONS, payload)
        return [row.steps * step for row in messages.ALLOCATION.unpack_all(answer, 4)]

    def ld_config_read(self, port: int, ld: int, offset: int) -> int:
        """Reads a DW of an LD's configuration space; *ld* 0xFFFF is the fabric manager's own LD."""
        access = messages.LdConfigAccess(port, config_place(offset), ld, 0)
        return word(self.request(FmOpcode.LD_CONFIG, messages.LD_CONFIG.pack(access)))

    def ld_config_write(self, port: int, ld: int, offset: int, value: int) -> None:
        access = messages.LdConfigAccess(port, config_place(offset, write=True), ld, value)
        self.request(FmOpcode.LD_CONFIG, messages.LD_CONFIG.pack(access))

    def ld_read(self, port: int, ld: int, address: int, length: int) -> bytes:
        """Reads registers behind an LD's BARs, in whole DWs."""
        access = messages.LdMemoryAccess(port, _range(length), ld, length, address)
        answer = self.request(FmOpcode.LD_MEMORY, messages.LD_MEMORY.pack(access))
        return answer[4 : 4 + int.from_bytes(answer[:2], "little")]

    def ld_write(self, port: int, ld: int, address: int, data: bytes) -> None:
        where = _range(len(data), write=True)
        access = messages.LdMemoryAccess(port, where, ld, len(data), address)
        self.request(FmOpcode.LD_MEMORY, messages.LD_MEMORY.pack(access) + data)

    def capacity(self, port: int) -> DcdClient:
        """Returns the dynamic capacity of the device at a port."""
        return DcdClient(partial(self.tunnel, port))

    def qos(self, port: int) -> messages.QosControl:
        return messages.QOS.unpack(self.tunnel(port, FmOpcode.QOS_CONTROL))

    def set_qos(self, port: int, qos: messages.QosControl) -> messages.QosControl:
        answer = self.tunnel(port, FmOpcode.SET_QOS_CONTROL, messages.QOS.pack(qos))
        return messages.QOS.unpack(answer)

    def bandwidth(self, port: int, *, limit: bool = False) -> list[int]:
        """Returns the bandwidth of each LD, or its limit, in 1/256 of the device's."""
        opcode = FmOpcode.QOS_LIMIT if limit else FmOpcode.QOS_BANDWIDTH
        return list(self.tunnel(port, opcode, bytes([0xFF, 0]))[messages.LD_RANGE.size :])

    def set_bandwidth(
        self, port: int, first: int, parts: Sequence[int], *, limit: bool = False
    ) -> None:
        """Sets the bandwidth of LDs *first*…, in 1/256 of the device's, or its limit."""
        opcode = FmOpcode.SET_QOS_LIMIT if limit else FmOpcode.SET_QOS_BANDWIDTH
        self.tunnel(port, opcode, _bytes([len(parts), first, *parts]))


def _bytes(values: Sequence[int]) -> bytes:
    """Encodes numbers.  LocalError: one does not fit a byte."""
    wrong = next((value for value in values if not 0 <= value <= 0xFF), None)
    if wrong is not None:
        raise LocalError(f"{wrong} does not fit a byte: choose 0 to 255", EINVAL)
    return bytes(values)


def config_place(offset: int, *, write: bool = False) -> bytes:
    """Encodes the DW at *offset* with all byte enables."""
    return (offset | 0xF << 12 | write << 23).to_bytes(3, "little")


def word(data: bytes) -> int:
    """Returns the first DW of *data*."""
    return int.from_bytes(data[:4], "little")


def _range(length: int, *, write: bool = False) -> bytes:
    last = 0xF if length > 4 else 0
    return (0xF << 12 | last << 16 | write << 23).to_bytes(3, "little")
