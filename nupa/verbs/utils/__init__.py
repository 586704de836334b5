# SPDX-License-Identifier: BSD-3-Clause
"""Names of verbs' numbers, by the functions that pyverbs has for them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, IntFlag

from nupa.verbs import enums as e
from nupa.verbs.base.errors import PyverbsUserError


def be64toh(num: int) -> int:
    """Reverses the eight bytes of *num*."""
    return int.from_bytes(num.to_bytes(8, "little"), "big")


def gid_str(subnet_prefix: int, interface_id: int) -> str:
    """Formats the GID of two 64 bit halves, each as big endian memory read in host order."""
    return gid_text(subnet_prefix.to_bytes(8, "little") + interface_id.to_bytes(8, "little"))


def gid_text(raw: bytes) -> str:
    """Formats 16 bytes as eight words.

    >>> gid_text(bytes(10) + b"\\xff\\xff" + bytes([10, 0, 0, 1]))
    '0000:0000:0000:0000:0000:ffff:0a00:0001'
    """
    text = raw.hex()
    return ":".join(text[at : at + 4] for at in range(0, 32, 4))


def gid_bytes(val: str) -> bytes:
    """Parses a GID in eight words to its 16 bytes.  PyverbsUserError: not a GID."""
    words = val.split(":")
    if len(words) != 8 or any(len(word) != 4 for word in words):
        raise PyverbsUserError(
            f"Invalid GID value ({val}): give eight words of four hexadecimal digits"
        )
    try:
        return bytes.fromhex("".join(words))
    except ValueError:
        raise PyverbsUserError(f"Invalid GID value ({val}): not hexadecimal") from None


def gid_str_to_array(val: str) -> list[str]:
    """Splits a GID in eight words into 16 pairs of digits."""
    text = gid_bytes(val).hex()
    return [text[at : at + 2] for at in range(0, 32, 2)]


def str_from_flags(flags: int, dictionary: Mapping[int, str]) -> str:
    """Lists the names of the bits that are set, a line each."""
    return "\n  " + "".join(f"{name}\n  " for bit, name in dictionary.items() if flags & bit)


def flags_to_str(flags: int, dictionary: Mapping[int, str]) -> str:
    """Lists the names of the bits that are set, with spaces between."""
    return "".join(f"{name} " for bit, name in dictionary.items() if flags & bit)


def _names(kind: type[IntFlag] | type[IntEnum]) -> dict[int, str]:
    return {int(member): name for name, member in kind.__members__.items()}


_QP_TYPES = {
    2: "RC", 3: "UC", 4: "UD", 8: "Raw Packet", 9: "XRCD_SEND", 10: "XRCD_RECV", 0xFF: "Driver QP",
}  # fmt: skip
_QP_STATES = dict(enumerate(("Reset", "Init", "RTR", "RTS", "SQD", "SQE", "Error", "Unknown")))
_MTUS = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}
_ACCESS = {
    1: "Local write", 2: "Remote write", 4: "Remote read", 8: "Remote atomic", 16: "MW bind",
    32: "Zero based", 64: "On demand",
}  # fmt: skip
_NODE_TYPES = {1: "CA", 2: "Switch", 3: "Router", 4: "RNIC", 5: "USNIC", 6: "USNIC UDP"}
_TRANSPORTS = {0: "IB", 1: "IWARP", 2: "USNIC", 3: "USNIC UDP"}
_PORT_STATES = dict(enumerate(("NOP", "Down", "Init", "Armed", "Active", "Defer")))
_PHYS_STATES = dict(
    enumerate(
        (
            "Sleep", "Polling", "Disabled", "Port configuration training", "Link up",
            "Link error recovery", "Phy test",
        ),
        start=1,
    )
)  # fmt: skip
_WIDTHS = {1: "1X", 2: "4X", 4: "8X", 8: "12X", 16: "2X"}
_SPEEDS = {
    0: "0.0 Gbps", 1: "2.5 Gbps", 2: "5.0 Gbps", 4: "5.0 Gbps", 8: "10.0 Gbps", 16: "14.0 Gbps",
    32: "25.0 Gbps", 64: "50.0 Gbps", 128: "100.0 Gbps", 256: "200.0 Gbps",
}  # fmt: skip
_WC_STATUS = (
    "success", "local length error", "local QP op error", "local EEC op error",
    "local protection error", "WR flush error", "memory window bind error", "bad response error",
    "local access error", "remote invalidate request error", "remote access error",
    "remote op error", "retry exceeded error", "RNR retry exceeded", "local RDD violation error",
    "remote invalidate RD request error", "remote abort error", "invalidate EECN error",
    "invalidate EEC state error", "WC fatal error", "response timeout error", "general error",
)  # fmt: skip
_WC_OPCODES = {
    0: "Send", 1: "RDMA write", 2: "RDMA read", 3: "Compare and swap", 4: "Fetch and add",
    5: "Bind Memory window", 6: "Local invalidate", 7: "TSO", 0x80: "Receive",
    0x81: "Receive RDMA with immediate", 0x82: "Tag matching - add",
    0x83: "Tag matching - delete", 0x84: "Tag matching - sync", 0x85: "Tag matching - receive",
    0x86: "Tag matching - no tag", 0x87: "Driver WR",
}  # fmt: skip
_WC_FLAGS = {
    1: "GRH", 2: "With immediate", 4: "IP csum OK", 8: "With invalidate",
    16: "TM sync request", 32: "TM match", 64: "TM data valid",
}  # fmt: skip


def qp_type_to_str(qp_type: int) -> str:
    return _QP_TYPES.get(qp_type, f"Unknown ({qp_type})")


def qp_state_to_str(qp_state: int) -> str:
    return _QP_STATES.get(qp_state, f"Unknown ({qp_state})")


def mtu_to_str(mtu: int) -> int:
    return _MTUS.get(mtu, 0)


def access_flags_to_str(flags: int) -> str:
    return flags_to_str(flags, _ACCESS)


def mig_state_to_str(mig: int) -> str:
    return {0: "Migrated", 1: "Re-arm", 2: "Armed"}.get(mig, f"Unknown ({mig})")


def guid_format(num: int) -> str:
    """Formats a GUID, read from big endian memory, as four words."""
    text = num.to_bytes(8, "little").hex()
    return ":".join(text[at : at + 4] for at in range(0, 16, 4))


def guid_to_hex(node_guid: int) -> str:
    return f"{node_guid:x}"


def translate_node_type(node_type: int) -> str:
    return _NODE_TYPES.get(node_type, "Unknown")


def translate_transport_type(transport_type: int) -> str:
    return _TRANSPORTS.get(transport_type, "Unknown")


def _with_number(names: Mapping[int, object], value: int, unknown: str) -> str:
    return f"{names[value]} ({value})" if value in names else unknown


def port_state_to_str(port_state: int) -> str:
    return _with_number(_PORT_STATES, port_state, f"Invalid state ({port_state})")


def phys_state_to_str(phys: int) -> str:
    return _with_number(_PHYS_STATES, phys, "Invalid physical state")


def translate_mtu(mtu: int) -> str:
    return _with_number(_MTUS, mtu, f"Invalid MTU ({mtu})")


def width_to_str(width: int) -> str:
    return _with_number(_WIDTHS, width, "Invalid width")


def speed_to_str(active_speed: int, active_speed_ex: int = 0) -> str:
    """Formats a speed; active_speed_ex counts where the 8 bits of active_speed do not suffice."""
    return _with_number(_SPEEDS, active_speed_ex or active_speed, "Invalid speed")


def translate_link_layer(ll: int) -> str:
    names = {0: "Unspecified", 1: "InfiniBand", 2: "Ethernet"}
    return names.get(ll, f"Invalid link layer ({ll})")


def translate_gid_type(gid_type: int) -> str:
    names = {0: "IB", 1: "RoCEv1", 2: "RoCEv2"}
    return names.get(gid_type, f"Unknown gid_type ({gid_type})")


def translate_event_type(event_type: int) -> str:
    names = _names(e.ibv_event_type)
    return names.get(event_type, f"Unknown event_type ({event_type})")


def mwtype2str(mw_type: int) -> str:
    return _names(e.ibv_mw_type).get(mw_type, f"Unknown MW type ({mw_type})")


def rereg_error_to_str(error: int) -> str:
    return _names(e.ibv_rereg_mr_err_code).get(error, f"Unknown error ({error})")


def translate_port_cap_flags(flags: int) -> str:
    return str_from_flags(flags, _names(e.ibv_port_cap_flags))


def translate_port_cap_flags2(flags: int) -> str:
    return str_from_flags(flags, _names(e.ibv_port_cap_flags2))


def odp_general_caps_to_str(flags: int) -> str:
    return str_from_flags(flags, _names(e.ibv_odp_general_caps))


def odp_transport_caps_to_str(flags: int) -> str:
    return str_from_flags(flags, _names(e.ibv_odp_transport_cap_bits))


def translate_device_caps(flags: int) -> str:
    return str_from_flags(flags, _names(e.ibv_device_cap_flags))


def send_flags_to_str(flags: int) -> str:
    return flags_to_str(flags, _names(e.ibv_send_flags))


def cqe_status_to_str(status: int) -> str:
    return _WC_STATUS[status] if 0 <= status < len(_WC_STATUS) else "Unknown CQE status"


def cqe_opcode_to_str(opcode: int) -> str:
    return _WC_OPCODES.get(opcode, f"Unknown CQE opcode {opcode}")


def cqe_flags_to_str(flags: int) -> str:
    return flags_to_str(flags, _WC_FLAGS)


def create_wc_flags_to_str(flags: int) -> str:
    return flags_to_str(flags, _names(e.ibv_create_cq_wc_flags))
