# SPDX-License-Identifier: BSD-3-Clause
"""MSI-X: messages that a function writes into the address space of its host (PCIe 6.0 6.1.4,
7.7.2)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from nupa.cxl.registers.block import Registers
from nupa.cxl.registers.pcie_tables import msix_pending, msix_table
from nupa.cxl.registers.space import Space

#: wire(address, data): a message signalled interrupt to the host.
Wire = Callable[[int, int], None]
PENDING_AT = 0x800
BAR_BYTES = 0x1000


class Msix:
    """The *vectors* of a function with the capability "msix" in *config*; table and pending bits
    are in `space`, which is behind a BAR."""

    def __init__(self, config: Registers, vectors: int) -> None:
        self.space = Space(BAR_BYTES)
        self._config = config
        self._table = Registers(msix_table(vectors), 16 * vectors)
        self._pending = Registers(msix_pending(vectors), 8)
        self.space.add("vectors", 0, self._table)
        self.space.add("pending", PENDING_AT, self._pending)
        #: The receiver of messages, if any.
        self.wire: Wire | None = None
        for i in range(vectors):
            self._table.on_write(f"vector{i}.mask", partial(self._unmasked, i))
        for field in ("control.function_mask", "control.enable"):
            config.on_write(field, self._config_written)
        self._vectors = vectors

    def send(self, vector: int) -> None:
        """Sends a message, if MSI-X is enabled; a masked one stays pending (6.1.4.5)."""
        if not self._config["control.enable"]:
            return
        masked = self._config["control.function_mask"] or self._table[f"vector{vector}.mask"]
        self._pending[f"vector{vector}"] = int(bool(masked))
        if self.wire is not None and not masked:
            address = self._table[f"vector{vector}.address"] << 2
            self.wire(address, self._table[f"vector{vector}.data"])

    def _unmasked(self, vector: int, _written: int, _old: int) -> None:
        if self._pending[f"vector{vector}"]:
            self.send(vector)

    def _config_written(self, _written: int, _old: int) -> None:
        for vector in range(self._vectors):
            self._unmasked(vector, 0, 0)
