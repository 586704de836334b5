# SPDX-License-Identifier: BSD-3-Clause
"""A type 3 device, made of its registers: HDM decoders, a mailbox, a DOE mailbox, interrupts."""

from __future__ import annotations

from collections.abc import Callable

from nupa.cxl.device.viral import Viral
from nupa.cxl.function.function import Function
from nupa.cxl.function.hdm import DecoderSet
from nupa.cxl.function.interrupts import BAR_BYTES, PENDING_AT, Msix
from nupa.cxl.media.parts import PartedMedia
from nupa.cxl.registers import component
from nupa.cxl.registers import component_tables as tables
from nupa.cxl.registers import dvsec_tables as dvsec
from nupa.cxl.registers import ext_tables as ext
from nupa.cxl.registers.component import ComponentRegisters
from nupa.cxl.registers.config import ConfigSpace
from nupa.cxl.registers.device_tables import DeviceRegisters
from nupa.cxl.registers.pci_tables import CLASS_ACCELERATOR, CLASS_CXL_MEMORY, Bar, type0
from nupa.cxl.registers.pcie_tables import (
    MSIX_BYTES,
    PCIE_BYTES,
    PcieLink,
    PortType,
    msix,
    pcie,
)

DEVICE_ID = 0x4E04
_VECTORS = 8
_DVSECS = ("device", "register_locator", "gpf_device", "flex_bus")


class Type3(Function):
    """A single logical device with *memory_bytes*, a multiple of 256 MiB.  `component` is behind
    BAR 0, `device` behind BAR 2, interrupts behind BAR 4; `decoders` are its HDM decoders.  They
    reach *dpa_bytes* if the device has dynamic capacity.  With *cache* it has the registers of a
    type 2 device (nupa/cxl/device/type2.py).

    An expander (nupa/cxl/device/expander.py) sets `media`, the memory behind it, and `poison_read`.
    The latter is called with the address of each poisoned line that a host has read.

    A function level reset leaves CXL state as it is (CXL 3.1 9.5); a CXL reset does not (9.7)."""

    def __init__(
        self,
        memory_bytes: int,
        *,
        serial: int = 0,
        decoders: int = 4,
        link: PcieLink | None = None,
        name: str = "type3",
        dpa_bytes: int = 0,
        cache: bool = False,
    ) -> None:
        self.memory_bytes = memory_bytes
        #: The LD-ID of its requests, if it is an LD of a multi-logical device (CXL 3.1 2.4).
        self.ld_id = 0
        self.media: PartedMedia | None = None
        self.poison_read: Callable[[int], None] = _ignore
        self.component = ComponentRegisters(
            [
                tables.ras(),
                tables.link(),
                tables.hdm(decoders, targets=0),
                tables.bi_decoder(explicit_commit=False, hdm_d=cache),
            ]
        )
        self.decoders = DecoderSet(self.component["hdm"], dpa_bytes or memory_bytes)
        self.device = DeviceRegisters()
        bars = [
            Bar(0, component.BYTES),
            Bar(2, self.device.size),
            Bar(4, BAR_BYTES, wide=False),
        ]
        kind = CLASS_ACCELERATOR if cache else CLASS_CXL_MEMORY
        protocols = ("cache", "mem") if cache else ("mem",)
        config = ConfigSpace(type0(dvsec.VENDOR_ID, DEVICE_ID, kind, bars))
        config.add_capability("pcie", pcie(PortType.ENDPOINT, link=link), PCIE_BYTES)
        config.add_capability("msix", msix(_VECTORS, 4, 0, PENDING_AT), MSIX_BYTES)
        self.msix = Msix(config["msix"], _VECTORS)
        for part in (
            dvsec.device(memory_bytes, cache=cache),
            dvsec.register_locator(
                [
                    dvsec.Location(dvsec.BlockId.COMPONENT, 0),
                    dvsec.Location(dvsec.BlockId.DEVICE, 2),
                ]
            ),
            dvsec.gpf_device(),
            dvsec.flex_bus(*protocols, "flit_68", "flit_256"),
        ):
            config.add_extended(part.name, part.rows, part.bytes)
        config.add_extended("doe", ext.doe(), ext.DOE_BYTES)
        config.add_extended("aer", ext.aer(), ext.AER_BYTES)
        config.add_extended("dsn", ext.dsn(serial), ext.DSN_BYTES)
        spaces = (self.component, self.device, self.msix.space)
        super().__init__(name, config, dict(zip(bars, spaces, strict=True)))
        if dpa_bytes:
            config["device"].preset("capability.mem", 1)  # 8.1.3.1, even if no range is its own
        self.viral = Viral(self)
        config["pcie"].on_write("device_control.initiate_reset", self._function_level_reset)
        config["device"].on_write("control_2.initiate_reset", self._cxl_reset)

    def reset(self, *, hot: bool = False, cxl: bool = False) -> None:
        super().reset(hot=hot, cxl=cxl)
        if not cxl:
            self.viral.end()

    def _function_level_reset(self, written: int, _old: int) -> None:
        if written:
            for name in self.config:
                if name not in _DVSECS:
                    self.config[name].reset(hot=True)

    def _cxl_reset(self, written: int, _old: int) -> None:
        if written:
            self.reset(cxl=True)
            self.config["device"]["status_2.reset_complete"] = 1


def _ignore(_dpa: int) -> None:
    """Does nothing: a device without commands has no logs."""
