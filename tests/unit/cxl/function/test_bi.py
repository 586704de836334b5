# SPDX-License-Identifier: BSD-3-Clause
"""Explicit commit of BI decoders and BI route tables, as software does it: CXL 3.1 8.2.4.26."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from nupa.cxl.host.host import Host
from nupa.cxl.host.root import RootComplex
from nupa.cxl.registers import component
from nupa.cxl.registers.pcie_tables import PortType
from nupa.cxl.site.site import Site

# Facts of Linux's and QEMU's headers: capability ids, offsets and bits.
BI_ROUTE_TABLE, BI_DECODER = 0x0B, 0x0C
CAPABILITY, CONTROL, STATUS = 0x0, 0x4, 0x8
FORWARD, ENABLE, COMMIT = 1 << 0, 1 << 1, 1 << 2
COMMITTED, ERROR = 1 << 0, 1 << 1
TIMEOUT = 0x2600  # 2 × 1 s


class Registers(NamedTuple):
    """A capability as the host has mapped it."""

    root: RootComplex
    at: int

    def read(self, offset: int) -> int:
        return self.root.read(self.at + offset, 4)

    def control(self, value: int) -> int:
        """Write the control register, and return the status."""
        self.root.write(self.at + CONTROL, 4, value)
        return self.read(STATUS)


@pytest.fixture
def host() -> Iterator[Host]:
    with Site(1, [256 << 20]) as site:
        site.bind(0, 0, 1)
        yield site.host(0)


def find(host: Host, kind: PortType, number: int) -> Registers:
    function = next(each for each in host.functions if each.kind is kind)
    base = function.bars[0][0]
    listed = component.find_capabilities(lambda at, size: host.root.read(base + at, size))
    return Registers(host.root, base + next(x.offset for x in listed if x.number == number))


def test_a_decoder_of_a_switch_port_is_committed_by_a_transition_of_its_bit(host: Host) -> None:
    decoder = find(host, PortType.DOWNSTREAM, BI_DECODER)
    assert decoder.read(CAPABILITY) == 1 << 1  # an explicit commit is required
    assert decoder.read(STATUS) == TIMEOUT
    assert decoder.control(ENABLE) == TIMEOUT
    assert decoder.control(ENABLE | COMMIT) == TIMEOUT | COMMITTED
    assert decoder.control(FORWARD | COMMIT) == TIMEOUT | COMMITTED  # no transition
    assert decoder.control(FORWARD) == TIMEOUT | COMMITTED
    assert decoder.control(FORWARD | COMMIT) == TIMEOUT | COMMITTED


def test_a_decoder_that_forwards_and_is_enabled_is_not_committed(host: Host) -> None:
    decoder = find(host, PortType.DOWNSTREAM, BI_DECODER)
    assert decoder.control(ENABLE | FORWARD | COMMIT) == TIMEOUT | ERROR
    assert decoder.control(ENABLE) == TIMEOUT | ERROR
    assert decoder.control(ENABLE | COMMIT) == TIMEOUT | COMMITTED


def test_the_route_table_of_an_upstream_port_is_committed(host: Host) -> None:
    table = find(host, PortType.UPSTREAM, BI_ROUTE_TABLE)
    assert table.read(CAPABILITY) == 1
    assert table.control(0) == TIMEOUT
    assert table.control(1) == TIMEOUT | COMMITTED
    assert table.control(0) == TIMEOUT | COMMITTED


def test_a_reset_forgets_what_was_committed(host: Host) -> None:
    decoder = find(host, PortType.DOWNSTREAM, BI_DECODER)
    decoder.control(ENABLE | COMMIT)
    port = next(each for each in host.functions if each.kind is PortType.DOWNSTREAM)
    function = host.root.function(port.bdf)
    assert function is not None
    function.reset(hot=True)
    assert function.component["bi_decoder"]["status.committed"] == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [PortType.ROOT, PortType.ENDPOINT])
def test_a_capability_without_explicit_commit_says_so_and_shows_none(
    host: Host, kind: PortType
) -> None:
    decoder = find(host, kind, BI_DECODER)
    assert not decoder.read(CAPABILITY) & 1 << 1
    assert decoder.control(ENABLE | COMMIT) & 0xFF == 0
