# SPDX-License-Identifier: BSD-3-Clause
"""Devices: listing and opening them."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from nupa._engine import ffi, lib
from nupa.base.errors import LocalError, NupaError
from nupa.core.attachment import attach
from nupa.core.mover import Mover
from nupa.verbs.base import PyverbsCM, PyverbsObject, PyverbsValue, address_of, closed
from nupa.verbs.base.errors import PyverbsRDMAError, PyverbsUserError, check, made, refuse
from nupa.verbs.base.fields import WhileOpen, table
from nupa.verbs.device.attributes import (
    CQModerationCaps,
    DeviceAttr,
    DeviceAttrEx,
    ODPCaps,
    PacketPacingCaps,
    PCIAtomicCaps,
    PortAttr,
    QueryDeviceExInput,
    RSSCaps,
    TMCaps,
    TSOCaps,
)
from nupa.verbs.device.dm import DM, AllocDmAttr
from nupa.verbs.device.event import AsyncEvent, get_async_event
from nupa.verbs.device.gid_entry import GIDEntry, gid_entry_of
from nupa.verbs.enums import (
    IBV_GID_TYPE_ROCE_V2,
    IBV_GID_TYPE_SYSFS_IB_ROCE_V1,
    IBV_GID_TYPE_SYSFS_ROCE_V2,
    ibv_values_mask,
)
from nupa.verbs.utils import (
    guid_format,
    guid_to_hex,
    phys_state_to_str,
    port_state_to_str,
    speed_to_str,
    str_from_flags,
    translate_device_caps,
    translate_event_type,
    translate_gid_type,
    translate_link_layer,
    translate_mtu,
    translate_node_type,
    translate_port_cap_flags,
    translate_port_cap_flags2,
    translate_transport_type,
    width_to_str,
)
from nupa.verbs.utils.gid import GID

if TYPE_CHECKING:
    from nupa.core.segment import HostInfo
    from nupa.fabric import Fabric

__all__ = [
    "DM",
    "AllocDmAttr",
    "CQModerationCaps",
    "Context",
    "Device",
    "DeviceAttr",
    "DeviceAttrEx",
    "FdArr",
    "GIDEntry",
    "ODPCaps",
    "PCIAtomicCaps",
    "PacketPacingCaps",
    "PortAttr",
    "QueryDeviceExInput",
    "RSSCaps",
    "TMCaps",
    "TSOCaps",
    "get_device_list",
    "guid_format",
    "guid_to_hex",
    "phys_state_to_str",
    "port_state_to_str",
    "rdma_get_devices",
    "speed_to_str",
    "str_from_flags",
    "translate_device_caps",
    "translate_event_type",
    "translate_gid_type",
    "translate_link_layer",
    "translate_mtu",
    "translate_node_type",
    "translate_port_cap_flags",
    "translate_port_cap_flags2",
    "translate_transport_type",
    "width_to_str",
]

_DEVICE_NAME = "nupa_rdma0"
_NO_DEVICE = (
    "run the program under `nupa run`, which attaches it to a host, "
    "or give Context a fabric: Context(fabric=..., host=0)"
)


class Device(PyverbsObject):
    """A device that can be opened.  name is bytes, as in pyverbs; guid is in host order."""

    name: bytes
    guid: int
    node_type: int
    transport_type: int
    index: int

    def __init__(
        self, name: bytes, guid: int, node_type: int, transport_type: int, index: int
    ) -> None:
        self.name = name
        self.guid = guid
        self.node_type = node_type
        self.transport_type = transport_type
        self.index = index

    def __str__(self) -> str:
        return (
            f"Device {self.name.decode()}, node type {translate_node_type(self.node_type)}, "
            f"transport type {translate_transport_type(self.transport_type)}, "
            f"guid {guid_to_hex(self.guid)}, index {self.index}"
        )


class _DeviceList:
    """The C array of devices, freed at the end of the `with`."""

    def __enter__(self) -> list[Any]:
        count = ffi.new("int *")
        self._list = lib.nupa_get_device_list(count)
        if not self._list:
            refuse("Failed to get devices list")
        return [self._list[i] for i in range(count[0])]

    def __exit__(self, *exc: object) -> None:
        lib.nupa_free_device_list(self._list)


def rdma_get_devices() -> list[Device]:
    """Lists the devices that rdma_cm uses: those of get_device_list()."""
    return get_device_list()


def get_device_list() -> list[Device]:
    """Lists the devices of this process: one under `nupa run`, else none."""
    with _DeviceList() as devices:
        return [
            Device(
                ffi.string(lib.nupa_get_device_name(device)),
                int.from_bytes(lib.nupa_get_device_guid(device).to_bytes(8, "little"), "big"),
                device.node_type,
                device.transport_type,
                lib.nupa_get_device_index(device),
            )
            for device in devices
        ]


class FdArr(PyverbsValue):
    """File descriptors, the first *count* of *arr*."""

    arr: list[int]

    def __init__(self, arr: Sequence[int] = (), count: int = 0) -> None:
        self.arr = list(arr[:count])

    @property
    def count(self) -> int:
        return len(self.arr)

    def __str__(self) -> str:
        return table({"Number of fd in arr": self.count, "FDs in arr": self.arr}, 20)


class Context(PyverbsCM):
    """An open device; closing it closes everything made from it.

    Context(name="nupa_rdma0") opens the device that `nupa run` provides.
    Context(fabric=f, host=0) attaches this process to a host of a fabric.
    Context(cmd_fd=fd) imports a device from a copy of another context's cmd_fd, in this process or
    another, and takes the descriptor over (man 3 ibv_import_device).

    host: its number, its name or an element of f.hosts; None: the host of an earlier attachment,
    else the host with the fewest.
    mover: the only mover for bulk data, Mover.RELAY or "relay" ...; None: the best.
    PyverbsRDMAError says why a device cannot be opened.
    """

    _rank = PyverbsCM.RANK_PD

    def __init__(
        self,
        name: str | None = None,
        *,
        fabric: Fabric | None = None,
        host: HostInfo | int | str | None = None,
        mover: Mover | str | None = None,
        cmd_fd: int | None = None,
    ) -> None:
        self.name = name
        self._by_address: WeakValueDictionary[int, PyverbsCM] = WeakValueDictionary()
        if cmd_fd is not None:
            self._c = lib.nupa_import_device(cmd_fd)
            if not self._c:
                self._c = None
                refuse(f"Failed to import a device from descriptor {cmd_fd}")
            self.name = name or _DEVICE_NAME
        elif fabric is not None:
            self._fabric = fabric
            self._c = _attach(fabric, host, mover)
            self.name = name or _DEVICE_NAME
        elif name is not None:
            if mover is not None or host is not None:
                raise PyverbsUserError(
                    "host and mover go with fabric=; for a device by name they come from "
                    "`nupa run --host H --mover M`"
                )
            self._c = _open_name(name)
        else:
            raise PyverbsUserError(f"Device name must be provided: {_NO_DEVICE}")

    def _destroy(self, c: Any) -> int:
        return int(lib.nupa_close_device(c))

    def _register(self, obj: PyverbsCM) -> None:
        self._by_address[address_of(obj._c)] = obj

    name: str | None
    num_comp_vectors = WhileOpen("num_comp_vectors")
    cmd_fd = WhileOpen("cmd_fd")
    #: readable when get_async_event() would not wait
    async_fd = WhileOpen("async_fd")

    @property
    def context(self) -> int:
        """The address of its `struct ibv_context`, for ctypes and other bindings."""
        return address_of(self._c or closed(self))

    @property
    def host(self) -> int:
        """The index of the host in its fabric."""
        return int(lib.nupa_context_host(self._c or closed(self)))

    @property
    def slot(self) -> int:
        """The number of this attachment in the fabric, as `nupa show` lists it."""
        return int(lib.nupa_context_slot(self._c or closed(self)))

    def query_device(self) -> DeviceAttr:
        return self.query_device_ex().orig_attr

    def query_device_ex(self, ex_input: QueryDeviceExInput | None = None) -> DeviceAttrEx:
        attr = DeviceAttrEx()
        given = ffi.NULL if ex_input is None else ex_input._c
        c = self._c or closed(self)
        rc = lib.nupa_query_device_ex(c, given, attr._c, ffi.sizeof(attr._c[0]))
        check(rc, f"Failed to query EX device {self.name}")
        return attr

    def query_port(self, port_num: int) -> PortAttr:
        attr = PortAttr()
        c = self._c or closed(self)
        rc = lib.nupa_query_port(c, port_num, attr._c, ffi.sizeof(attr._c[0]))
        if rc:
            refuse(f"Failed to query port {port_num}", rc, "the device has port 1")
        return attr

    def query_gid(self, port_num: int, index: int) -> GID:
        gid = GID()
        rc = lib.nupa_query_gid(self._c or closed(self), port_num, index, gid._c)
        check(rc, f"Failed to query gid {index} of port {port_num}")
        return gid

    def query_gid_ex(self, port_num: int, gid_index: int, flags: int = 0) -> GIDEntry:
        entry = ffi.new("struct ibv_gid_entry *")
        c = self._c or closed(self)
        rc = lib.nupa_query_gid_ex(c, port_num, gid_index, entry, flags, ffi.sizeof(entry[0]))
        check(rc, f"Failed to query gid {gid_index} of port {port_num}")
        return gid_entry_of(entry[0])

    def query_gid_table(self, max_entries: int, flags: int = 0) -> list[GIDEntry]:
        """Returns the GIDs of all ports that are not zero.

        PyverbsRDMAError: *max_entries* are too few; its error_code is -EINVAL, as in pyverbs.
        """
        entries = ffi.new("struct ibv_gid_entry[]", max_entries)
        size = ffi.sizeof("struct ibv_gid_entry")
        c = self._c or closed(self)
        count = lib.nupa_query_gid_table(c, entries, max_entries, flags, size)
        if count < 0:
            raise PyverbsRDMAError(
                f"Failed to query gid table with room for {max_entries} entries", int(count)
            )
        return [gid_entry_of(entries[i]) for i in range(count)]

    def query_gid_type(self, port_num: int, index: int) -> int:
        """Returns IBV_GID_TYPE_SYSFS_IB_ROCE_V1 or IBV_GID_TYPE_SYSFS_ROCE_V2."""
        if self.query_gid_ex(port_num, index).gid_type == IBV_GID_TYPE_ROCE_V2:
            return IBV_GID_TYPE_SYSFS_ROCE_V2
        return IBV_GID_TYPE_SYSFS_IB_ROCE_V1

    def query_pkey(self, port_num: int, index: int) -> int:
        """Returns a partition key, big endian as in the port's table."""
        pkey = ffi.new("uint16_t *")
        rc = lib.nupa_query_pkey(self._c or closed(self), port_num, index, pkey)
        check(rc, f"Failed to query pkey {index} of port {port_num}")
        return int(pkey[0])

    def get_pkey_index(self, port_num: int, pkey: int) -> int:
        """Returns the index of *pkey*, in host order, in the port's table."""
        for index in range(self.query_port(port_num).pkey_tbl_len):
            if socket.ntohs(self.query_pkey(port_num, index)) == pkey & 0xFFFF:
                return index
        raise PyverbsRDMAError(f"Failed to get pkey index of pkey {pkey:#x} of port {port_num}")

    def query_rt_values_ex(
        self, comp_mask: int = ibv_values_mask.IBV_VALUES_MASK_RAW_CLOCK
    ) -> tuple[int, int]:
        """Returns the clock of completion timestamps: seconds and nanoseconds."""
        values = ffi.new("struct ibv_values_ex *")
        values.comp_mask = int(comp_mask)
        rc = lib.nupa_query_rt_values_ex(self._c or closed(self), values)
        check(rc, "Failed to query real time values")
        return int(values.raw_clock.tv_sec), int(values.raw_clock.tv_nsec)

    def get_async_event(self, timeout: float | None = None) -> AsyncEvent:
        """Returns the next asynchronous event; waits at most *timeout* seconds (None: for ever).

        Use it as `with ctx.get_async_event() as event:`, which acknowledges it at the end.
        TimeoutError: there is none in time.
        """
        return get_async_event(self, self._c or closed(self), timeout)

    def __repr__(self) -> str:
        state = "closed" if self._c is None else f"host {self.host}"
        return f"<Context {self.name}, {state}>"


def _open_name(name: str) -> Any:
    found = []
    with _DeviceList() as devices:
        for device in devices:
            found.append(ffi.string(lib.nupa_get_device_name(device)).decode())
            if found[-1] == name:
                return made(lib.nupa_open_device(device), f"Failed to open device {name}")
    there = f"there are {', '.join(found)}" if found else _NO_DEVICE
    raise PyverbsRDMAError(f"Failed to find device {name}: {there}")


def _attach(fabric: Fabric, host: HostInfo | int | str | None, mover: Mover | str | None) -> Any:
    try:
        chosen = Mover.parse(mover) if isinstance(mover, str) else mover
    except LocalError as error:
        raise PyverbsUserError(str(error)) from None
    try:
        return attach(fabric, host, chosen)
    except NupaError as error:
        raise PyverbsRDMAError(str(error), error.errno) from error
