# SPDX-License-Identifier: BSD-3-Clause
"""Root ports, and the upstream and downstream ports of a switch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nupa.cxl.function.bi_commit import follow_commits
from nupa.cxl.function.function import Bridge, Function
from nupa.cxl.function.hdm import DecoderSet
from nupa.cxl.registers import component
from nupa.cxl.registers import component_tables as tables
from nupa.cxl.registers import dvsec_tables as dvsec
from nupa.cxl.registers import ext_tables as ext
from nupa.cxl.registers.component import ComponentRegisters
from nupa.cxl.registers.config import ConfigSpace
from nupa.cxl.registers.pci_tables import Bar, type1
from nupa.cxl.registers.pcie_tables import PCIE_BYTES, PcieLink, PortType, pcie

#: The consortium's vendor id, as we have none (CXL 3.1 8.1); device ids distinguish the kinds.
VENDOR_ID = dvsec.VENDOR_ID
_DEVICE_IDS = {PortType.ROOT: 0x4E01, PortType.UPSTREAM: 0x4E02, PortType.DOWNSTREAM: 0x4E03}
_SPEAKS = ("mem", "flit_68", "flit_256")


class Port(Bridge):
    """A port, with its component registers behind BAR 0; *number* is the Port Number of its Link
    Capabilities, which decoders' targets name (CXL 3.1 8.2.4.20.8)."""

    def __init__(
        self,
        port_type: PortType,
        capabilities: Sequence[tables.Capability],
        *,
        number: int,
        slot: int = 0,
        link: PcieLink | None = None,
        name: str = "",
    ) -> None:
        self.port_type = port_type
        self.number = number
        self._changed: list[Callable[[], None]] = []
        #: Called with this port for each event that software has enabled (PCIe 6.0 6.7.3.4).
        self.interrupts: list[Callable[[Port], None]] = []
        self.component = ComponentRegisters(capabilities)
        follow_commits(self.component)
        #: HDM decoders of an upstream port; other ports forward all requests.
        self.decoders = DecoderSet(self.component["hdm"]) if "hdm" in self.component else None
        bar = Bar(0, component.BYTES)
        config = ConfigSpace(type1(VENDOR_ID, _DEVICE_IDS[port_type], [bar]))
        config.add_capability(
            "pcie", pcie(port_type, port=number, slot=slot, link=link), PCIE_BYTES
        )
        config.add_extended("aer", ext.aer(root=port_type is PortType.ROOT), ext.AER_BYTES)
        parts = [dvsec.port_extensions()]
        if port_type.has_slot:
            config.add_extended("acs", ext.acs(), ext.ACS_BYTES)
            parts.append(dvsec.gpf_port())
        parts += (dvsec.flex_bus(*_SPEAKS), dvsec.register_locator([_COMPONENT]))
        for part in parts:
            config.add_extended(part.name, part.rows, part.bytes)
        super().__init__(name or f"{port_type.name.lower()}{number}", config, {bar: self.component})

    @property
    def may_reset_below(self) -> bool:
        """Whether Secondary Bus Reset is unmasked (CXL 3.1 8.1.5.2)."""
        return bool(self.config["port_extensions"]["control.unmask_secondary_bus_reset"])

    def attach(self, function: Function, devfn: int = 0) -> None:
        """Puts *function* below; a slot shows presence and an active link.  ValueError: the place
        is taken."""
        if devfn in self.below:
            raise ValueError(f"{self.name} has {self.below[devfn].name} already: detach it first")
        self.below[devfn] = function
        self._presence()

    def detach(self, devfn: int = 0) -> Function:
        """Removes a function.  KeyError: there is none."""
        function = self.below.pop(devfn)
        self._presence()
        return function

    def train(self, function: Function, *, up: bool) -> None:
        """Brings the link to *function* up, or takes it down by surprise, which resets all
        functions below (PCIe 6.0 6.6.1, CXL 3.1 9.9)."""
        if up:
            self.below[0] = function
        else:
            del self.below[0]
            note_surprise(self)
        self.config["pcie"].preset("link_status.active", int(up))
        self._below_changed()
        if not up:
            function.reset(hot=True)
        self.tell(["link_state_changed"])

    @property
    def link_disabled(self) -> bool:
        """Whether Link Disable is set and unmasked (CXL 3.1 8.1.5.2)."""
        unmasked = self.config["port_extensions"]["control.unmask_link_disable"]
        return bool(unmasked and self.config["pcie"]["link_control.disable"])

    def tell(self, events: Sequence[str]) -> None:
        """Reports events of the slot, as far as software has enabled them."""
        pcie = self.config["pcie"]
        heard = False
        for event in events:
            pcie[f"slot_status.{event}"] = 1
            enable = event.replace("_changed", "") if event == "link_state_changed" else event
            heard |= bool(pcie[f"slot_control.{enable}_enable"])
        if heard and pcie["slot_control.interrupt_enable"]:
            for interrupt in self.interrupts:
                interrupt(self)

    def _presence(self) -> None:
        if self.port_type.has_slot:
            there = int(bool(self.below))
            self.config["pcie"].preset("slot_status.presence", there)
            self.config["pcie"].preset("link_status.active", there)
        self._below_changed()

    def _below_changed(self) -> None:
        for handler in self._changed:
            handler()

    def between(self) -> tuple[Port, ...] | None:
        """Returns the ports on the way to the function below; None: there is no way."""
        return ()

    def on_change(self, handler: Callable[[], None]) -> None:
        """Calls *handler* after a function was attached or detached."""
        self._changed.append(handler)


def note_surprise(port: Port) -> None:
    """Records that the link of *port* went down by surprise (PCIe 6.0 7.8.4.2, CXL 3.1
    8.2.4.17.4)."""
    port.config["aer"]["uncorrectable_status.surprise_down"] = 1
    port.component["ras"]["correctable_status.physical_layer"] = 1


_COMPONENT = dvsec.Location(dvsec.BlockId.COMPONENT, 0)


def root_port(number: int, *, slot: int = 0, link: PcieLink | None = None) -> Port:
    """Makes a root port of a host bridge (CXL 3.1 8.2.4, table 8-22: "R")."""
    capabilities = (
        tables.ras(root=True),
        tables.link(),
        tables.isolation(),
        tables.bi_decoder(explicit_commit=False),
    )
    return Port(PortType.ROOT, capabilities, number=number, slot=slot, link=link)


def upstream_port(*, number: int = 0, decoders: int = 4, link: PcieLink | None = None) -> Port:
    """Makes an upstream port of a switch, with its HDM decoders; CDAT is behind its DOE mailbox."""
    capabilities = (
        tables.ras(),
        tables.link(),
        tables.hdm(decoders),
        tables.bi_route_table(),
    )
    port = Port(PortType.UPSTREAM, capabilities, number=number, link=link)
    port.config.add_extended("doe", ext.doe(), ext.DOE_BYTES)
    return port


def downstream_port(number: int, *, slot: int = 0, link: PcieLink | None = None) -> Port:
    """Makes a downstream port of a switch, with a slot."""
    capabilities = (tables.ras(), tables.link(), tables.bi_decoder(explicit_commit=True))
    return Port(PortType.DOWNSTREAM, capabilities, number=number, slot=slot, link=link)
