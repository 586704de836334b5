# SPDX-License-Identifier: BSD-3-Clause
"""The adapter of a host as sysfs has it: names, words and units of csrc/shim/files.c.

Units are those of the kernel's Documentation/ABI/stable/sysfs-class-infiniband.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from nupa.live.snapshot import Snapshot

#: Every adapter has one port.
PORT = "1"
BOARD_ID = "NUPA"
HCA_TYPE = "NUPA"
FIRMWARE = "nupa-1"
_STATES = {"ACTIVE": ("4: ACTIVE", "5: LinkUp"), "DOWN": ("1: DOWN", "3: Disabled")}
# Counters of the kernel of which nothing here is one.
_ZEROS = (
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_constraint_errors",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "symbol_error",
)


class Adapter(NamedTuple):
    """The RDMA device of a host, and its port.

    name: the host's.  state, physical_state, rate: as their files have them: "4: ACTIVE",
    "5: LinkUp", "100 Gb/sec (4X EDR)".  counters: of ports/1/counters, data in words of 4 bytes;
    hw_counters: of ports/1/hw_counters.
    """

    name: str
    guid: str
    link_layer: str
    lid: int
    state: str
    physical_state: str
    rate: str
    counters: dict[str, int]
    hw_counters: dict[str, int]

    @property
    def state_id(self) -> int:
        """IBTA 14.2.5.6, PortState."""
        return int(self.state.partition(":")[0])

    @property
    def physical_state_id(self) -> int:
        """IBTA 14.2.5.6, PortPhysicalState."""
        return int(self.physical_state.partition(":")[0])

    @property
    def rate_bytes_per_s(self) -> float:
        return float(self.rate.partition(" ")[0]) * 1e9 / 8

    def files(self) -> dict[str, str]:
        """Returns the files of its folder of /sys/class/infiniband, by their paths in it."""
        is_ethernet = self.link_layer == "ethernet"
        port = f"ports/{PORT}"
        found = {
            "node_type": "1: CA",
            "hca_type": HCA_TYPE,
            "board_id": BOARD_ID,
            "hw_rev": "1",
            "fw_ver": FIRMWARE,
            "abi_version": "1",
            "node_guid": self.guid,
            "sys_image_guid": self.guid,
            "node_desc": f"{self.name} nupa_rdma0",
            f"{port}/state": self.state,
            f"{port}/phys_state": self.physical_state,
            f"{port}/rate": self.rate,
            f"{port}/link_layer": "Ethernet" if is_ethernet else "InfiniBand",
            f"{port}/lid": f"{0 if is_ethernet else self.lid:#x}",
            f"{port}/lid_mask_count": "0",
        }
        for kind, values in (("counters", self.counters), ("hw_counters", self.hw_counters)):
            found |= {f"{port}/{kind}/{name}": str(value) for name, value in values.items()}
        return {path: f"{text}\n" for path, text in found.items()}


def adapters(snapshot: Snapshot) -> Iterator[Adapter]:
    """Iterates over the adapters of all hosts."""
    ports = {port["name"]: port for port in snapshot.fabric["ports"]}
    for host in snapshot.fabric["hosts"]:
        yield _adapter(host, ports[host["port"]])


def _adapter(host: Mapping[str, Any], port: Mapping[str, Any]) -> Adapter:
    state, physical = _STATES[port["state"]]
    hw: dict[str, int] = host["hw_counters"]
    counters: dict[str, int] = port["counters"]
    sent, came = counters["port_xmit_packets"], counters["port_rcv_packets"]
    groups = {name: hw[f"multicast_{name}_packets"] for name in ("xmit", "rcv")}
    return Adapter(
        host["name"],
        _guid(host["mac"]),
        host["link_layer"],
        host["lid"],
        state,
        physical,
        port["rate"],
        counters
        | dict.fromkeys(_ZEROS, 0)
        | {
            # The two are read one after the other, while they grow.
            "unicast_xmit_packets": max(sent - groups["xmit"], 0),
            "unicast_rcv_packets": max(came - groups["rcv"], 0),
            "multicast_xmit_packets": groups["xmit"],
            "multicast_rcv_packets": groups["rcv"],
        },
        # The second names are those of adapters and of the kernel's soft-RoCE.
        hw
        | {
            "sent_pkts": sent,
            "rcvd_pkts": came,
            "send_err": counters["port_xmit_discards"],
            "link_downed": counters["link_downed"],
            "completer_retry_err": hw["packet_seq_err"] + hw["local_ack_timeout_err"],
            "out_of_seq_request": hw["rx_out_of_sequence"],
            "rcvd_seq_err": hw["packet_seq_err"],
        },
    )


def _guid(mac: str) -> str:
    """Returns the GUID of an adapter, an EUI-64 of its MAC address (IEEE 802), as sysfs has it."""
    octets = bytes.fromhex(mac.replace(":", ""))
    return (bytes([octets[0] ^ 2]) + octets[1:3] + b"\xff\xfe" + octets[3:]).hex(":", 2)
