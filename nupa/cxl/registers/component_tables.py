# SPDX-License-Identifier: BSD-3-Clause
"""Component registers: RAS, link, HDM decoders, security, snoop filter, isolation, BI, as rows.

Sections are those of the CXL Specification 3.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nupa.cxl.registers.block import HWINIT, RO, ROS, RW, RW1CS, RWL, RWS, BitField, once, placed
from nupa.cxl.registers.pci_tables import bits


class Capability(NamedTuple):
    """A structure among CXL.cachemem registers: 8.2.4.1 to 8.2.4.16, table 8-22."""

    name: str
    number: int
    version: int
    bytes: int
    rows: tuple[BitField, ...]


_UNCORRECTABLE = {
    0: "cache_data_parity",
    1: "cache_address_parity",
    2: "cache_enable_parity",
    3: "cache_data_ecc",
    4: "mem_data_parity",
    5: "mem_address_parity",
    6: "mem_enable_parity",
    7: "mem_data_ecc",
    8: "reinit_threshold",
    9: "reserved_encoding",
    10: "poison_received",
    11: "receiver_overflow",
    14: "internal",
    15: "ide_tx",
    16: "ide_rx",
}
_CORRECTABLE = (
    "cache_data_ecc",
    "mem_data_ecc",
    "crc_threshold",
    "retry_threshold",
    "cache_poison_received",
    "mem_poison_received",
    "physical_layer",
)


@once
def ras(*, root: bool = False) -> Capability:
    """Makes the RAS capability (8.2.4.17); in a root port software may have poison reported as
    uncorrectable."""
    rows: list[BitField] = []
    for bit, name in _UNCORRECTABLE.items():
        rows += (
            BitField(f"uncorrectable_status.{name}", 0x00, str(bit), RW1CS, 0, "8.2.4.17.1"),
            BitField(f"uncorrectable_mask.{name}", 0x04, str(bit), RWS, 1, "8.2.4.17.2"),
            BitField(f"uncorrectable_severity.{name}", 0x08, str(bit), RWS, 1, "8.2.4.17.3"),
        )
    rows += bits("correctable_status", 0x0C, RW1CS, "8.2.4.17.4", _CORRECTABLE)
    rows += bits("correctable_mask", 0x10, RWS, "8.2.4.17.5", _CORRECTABLE, reset=0x7F)
    rows += (
        BitField("control.first_error", 0x14, "5:0", ROS, 0, "8.2.4.17.6"),
        BitField("control.multiple_headers", 0x14, "9", RO, 1, "8.2.4.17.6"),
        BitField("control.poison_enabled", 0x14, "13", RWS if root else RO, 1, "8.2.4.17.6"),
        BitField("header_log", 0x18, "511:0", ROS, 0, "8.2.4.17.7"),
    )
    return Capability("ras", 2, 3, 0x58, tuple(rows))


_CREDITS = {
    "cache_request": "9:0",
    "cache_response": "19:10",
    "cache_data": "29:20",
    "mem_request": "39:30",
    "mem_data": "49:40",
    "back_invalidate": "59:50",
}


@once
def link() -> Capability:
    """Makes the link capability (8.2.4.19); the credits, of 68-byte flits, are 0, as there is no
    link layer."""
    rows = [
        BitField("capability.version_supported", 0x00, "3:0", RWS, 2, "8.2.4.19.1"),
        BitField("capability.version_received", 0x00, "7:4", RO, 2, "8.2.4.19.1"),
        BitField("capability.wrap_supported", 0x00, "15:8", RWS, 9, "8.2.4.19.1"),
        BitField("capability.wrap_received", 0x00, "23:16", RO, 9, "8.2.4.19.1"),
        BitField("control.reset", 0x08, "0", RW, 0, "8.2.4.19.2"),
        BitField("control.init_stall", 0x08, "1", RWS, 0, "8.2.4.19.2"),
        BitField("control.credit_stall", 0x08, "2", RWS, 0, "8.2.4.19.2"),
        BitField("control.init_state", 0x08, "4:3", RO, 3, "8.2.4.19.2"),
        BitField("control.retry_buffer_used", 0x08, "12:5", RO, 0, "8.2.4.19.2"),
        BitField("ack_timer.force_threshold", 0x28, "7:0", RWS, 0x10, "8.2.4.19.6"),
        BitField("ack_timer.flush", 0x28, "17:8", RWS, 0x20, "8.2.4.19.6"),
        BitField("defeature.mdh_disable", 0x30, "0", RWS, 0, "8.2.4.19.7"),
    ]
    for name, where in _CREDITS.items():
        rows += (
            BitField(f"rx_credit_control.{name}", 0x10, where, RWS, 0, "8.2.4.19.3"),
            BitField(f"rx_credit_return.{name}", 0x18, where, RO, 0, "8.2.4.19.4"),
            BitField(f"tx_credit.{name}", 0x20, where, RO, 0, "8.2.4.19.5"),
        )
    return Capability("link", 4, 3, 0x38, tuple(rows))


#: 8.2.4.20.1, Decoder Count: its value is the index.  Devices have 10 at most.
DECODER_COUNTS = (1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32)
#: Base, size and skip are in these steps: 8.2.4.20.3.
STEP_BITS = 28
_DECODERS_AT, _DECODER_BYTES = 0x10, 0x20
TARGETS = 8


@once
def hdm(decoders: int, *, targets: int = TARGETS) -> Capability:
    """Makes the HDM decoder capability (8.2.4.20), with fields `decoderN.…`.  A device has
    *targets* 0, a DPA skip instead, and 3, 6, 12 and 16 ways; host bridges and switches do not have
    those ways.

    All but the status bits of decoder N are RWL, with the lock "decoderN.lock".  ValueError: a
    count has no encoding."""
    if decoders not in DECODER_COUNTS or targets not in (0, 1, 2, 4, 8):
        raise ValueError(f"no encoding of {decoders} decoders with {targets} targets (8.2.4.20.1)")
    count, device = DECODER_COUNTS.index(decoders), int(not targets)
    # Host-only and device coherent, for a device with BI.
    models = 3 * device
    rows = [
        BitField("capability.decoder_count", 0, "3:0", RO, count, "8.2.4.20.1"),
        BitField("capability.target_count", 0, "7:4", RO, targets or 1, "8.2.4.20.1"),
        BitField("capability.interleave_11_8", 0, "8", RO, 1, "8.2.4.20.1"),
        BitField("capability.interleave_14_12", 0, "9", RO, 1, "8.2.4.20.1"),
        BitField("capability.poison_on_error", 0, "10", RO, 1, "8.2.4.20.1"),
        BitField("capability.interleave_3_6_12", 0, "11", RO, device, "8.2.4.20.1"),
        BitField("capability.interleave_16", 0, "12", RO, device, "8.2.4.20.1"),
        BitField("capability.uio", 0, "13", HWINIT, 0, "8.2.4.20.1"),
        BitField("capability.uio_decoder_count", 0, "19:16", HWINIT, 0, "8.2.4.20.1"),
        BitField("capability.memdata_nxm", 0, "20", HWINIT, 1, "8.2.4.20.1"),
        BitField("capability.coherency_models", 0, "22:21", HWINIT, models, "8.2.4.20.1"),
        BitField("control.poison_on_error", 4, "0", RW, 0, "8.2.4.20.2"),
        # For devices; host bridges and switches always decode.
        BitField("control.enable", 4, "1", RW if device else RO, 0, "8.2.4.20.2"),
    ]
    for number in range(decoders):
        at = _DECODERS_AT + number * _DECODER_BYTES
        rows += placed(_decoder(targets), at, f"decoder{number}.")
    return Capability("hdm", 5, 3, _DECODERS_AT + decoders * _DECODER_BYTES, tuple(rows))


def _decoder(targets: int) -> Iterator[BitField]:
    lock = "lock"
    yield BitField("base", 0x00, f"63:{STEP_BITS}", RWL, 0, "8.2.4.20.3", lock)
    yield BitField("size", 0x08, f"63:{STEP_BITS}", RWL, 0, "8.2.4.20.5", lock)
    yield BitField("granularity", 0x10, "3:0", RWL, 0, "8.2.4.20.7", lock)
    yield BitField("ways", 0x10, "7:4", RWL, 0, "8.2.4.20.7", lock)
    yield BitField("lock_on_commit", 0x10, "8", RWL, 0, "8.2.4.20.7", lock)
    yield BitField("commit", 0x10, "9", RWL, 0, "8.2.4.20.7", lock)
    yield BitField("committed", 0x10, "10", RO, 0, "8.2.4.20.7")
    yield BitField("error", 0x10, "11", RO, 0, "8.2.4.20.7")
    yield BitField("host_only", 0x10, "12", RWL, 0, "8.2.4.20.7", lock)
    yield BitField("back_invalidate", 0x10, "13", RWL, 0, "8.2.4.20.7", lock)
    if not targets:
        yield BitField("position", 0x10, "27:24", RWL, 0, "8.2.4.20.7", lock)
        yield BitField("dpa_skip", 0x14, f"63:{STEP_BITS}", RWL, 0, "8.2.4.20.9", lock)
    for i in range(targets):
        section = "8.2.4.20.8" if i < 4 else "8.2.4.20.10"
        yield BitField(f"target{i}", 0x14 + i, "7:0", RWL, 0, section, lock)


def extended_security(ports: int) -> Capability:
    """Makes the extended security capability of a host bridge (8.2.4.21): a policy for each root
    port."""
    rows = [BitField("ports", 0x00, "7:0", HWINIT, ports, "8.2.4.21")]
    for i in range(ports):
        rows += (
            BitField(f"port{i}.trust_level", 0x04 + 8 * i, "1:0", RW, 2, "8.2.4.21"),
            BitField(f"port{i}.id", 0x08 + 8 * i, "7:0", HWINIT, i, "8.2.4.21"),
        )
    return Capability("extended_security", 6, 2, 4 + 8 * ports, tuple(rows))


#: Capacities of snoop filters are in these steps: 8.2.4.23.2.
SNOOP_STEP_BYTES = 1 << 16


def snoop_filter(group: int, size_bytes: int) -> Capability:
    """Makes the snoop filter capability (8.2.4.23): ports of one *group* share a filter, which can
    track a cache of *size_bytes*."""
    steps = size_bytes // SNOOP_STEP_BYTES
    rows = (
        BitField("group", 0x00, "15:0", HWINIT, group, "8.2.4.23.1"),
        BitField("capacity_steps", 0x04, "31:0", HWINIT, steps, "8.2.4.23.2"),
    )
    return Capability("snoop_filter", 8, 1, 0x08, rows)


@once
def isolation() -> Capability:
    """Makes the isolation capability (8.2.4.24): timeouts of transactions, and isolation of a root
    port."""
    rows = (
        BitField("capability.mem_timeout_ranges", 0x00, "3:0", RO, 0xF, "8.2.4.24.1"),
        BitField("capability.mem_timeout", 0x00, "4", RO, 1, "8.2.4.24.1"),
        BitField("capability.cache_timeout_ranges", 0x00, "11:8", RO, 0, "8.2.4.24.1"),
        BitField("capability.cache_timeout", 0x00, "12", RO, 0, "8.2.4.24.1"),
        BitField("capability.mem_isolation", 0x00, "16", RO, 1, "8.2.4.24.1"),
        BitField("capability.mem_isolation_link_down", 0x00, "17", RO, 1, "8.2.4.24.1"),
        BitField("control.mem_timeout_range", 0x08, "3:0", RW, 0, "8.2.4.24.2"),
        BitField("control.mem_timeout", 0x08, "4", RW, 0, "8.2.4.24.2"),
        BitField("control.mem_isolation", 0x08, "16", RW, 0, "8.2.4.24.2"),
        BitField("control.mem_isolation_link_down", 0x08, "17", RW, 0, "8.2.4.24.2"),
        BitField("status.mem_timeout", 0x0C, "0", RW1CS, 0, "8.2.4.24.3"),
        BitField("status.mem_isolation", 0x0C, "8", RW1CS, 0, "8.2.4.24.3"),
        BitField("status.mem_isolation_link_down", 0x0C, "9", RW1CS, 0, "8.2.4.24.3"),
    )
    return Capability("isolation", 9, 1, 0x10, rows)


_COMMIT_TIMEOUT_SCALE, _COMMIT_TIMEOUT_BASE = 6, 2  # 2 × 1 s


def _commit_status(section: str) -> tuple[BitField, ...]:
    return (
        BitField("status.committed", 0x08, "0", RO, 0, section),
        BitField("status.error", 0x08, "1", RO, 0, section),
        BitField("status.timeout_scale", 0x08, "11:8", HWINIT, _COMMIT_TIMEOUT_SCALE, section),
        BitField("status.timeout_base", 0x08, "15:12", HWINIT, _COMMIT_TIMEOUT_BASE, section),
    )


@once
def bi_route_table() -> Capability:
    """Makes the BI route table of an upstream switch port (8.2.4.26)."""
    rows = (
        BitField("capability.explicit_commit", 0x00, "0", HWINIT, 1, "8.2.4.26.1"),
        BitField("control.commit", 0x04, "0", RW, 0, "8.2.4.26.2"),
        *_commit_status("8.2.4.26.3"),
    )
    return Capability("bi_route_table", 0xB, 1, 0x0C, rows)


@once
def bi_decoder(*, explicit_commit: bool, hdm_d: bool = False) -> Capability:
    """Makes the BI decoder (8.2.4.27).  Downstream switch ports need an *explicit_commit*, root
    ports and devices do not; *hdm_d*: the device can use CXL.cache instead of BI."""
    rows = (
        BitField("capability.hdm_d", 0x00, "0", HWINIT, int(hdm_d), "8.2.4.27.1"),
        BitField(
            "capability.explicit_commit", 0x00, "1", HWINIT, int(explicit_commit), "8.2.4.27.1"
        ),
        BitField("control.forward", 0x04, "0", RW, 0, "8.2.4.27.2"),
        BitField("control.enable", 0x04, "1", RW, 0, "8.2.4.27.2"),
        BitField("control.commit", 0x04, "2", RW, 0, "8.2.4.27.2"),
        *_commit_status("8.2.4.27.3"),
    )
    return Capability("bi_decoder", 0xC, 1, 0x0C, rows)
