# SPDX-License-Identifier: BSD-3-Clause
"""scapy layers of MADs and of connection management."""

from __future__ import annotations

from socket import AF_INET6, inet_ntop
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.error import Scapy_Exception
from scapy.layers.inet import IP, UDP
from scapy.packet import Raw

from nupa.packet.scapy.cm import IPCM, MAD, MESSAGES, REJ, REQ, SIDR_REQ
from nupa.packet.scapy.fields import LayoutLayer
from nupa.packet.scapy.transport import BTH, DETH, GSI_QKEY, ImmDt
from nupa.packet.tables import cm as tables

# Where fields lie: message -> field -> (first bit of the message, bits).  IBTA 12.6 to 12.11, from
# the kernel's ibta_vol1_c12.h, which counts bytes.
PLACES: dict[str, dict[str, tuple[int, int]]] = {
    "REQ": {
        "local_comm_id": (0 * 8, 32),
        "service_id": (8 * 8, 64),
        "local_ca_guid": (16 * 8, 64),
        "local_qkey": (28 * 8, 32),
        "local_qpn": (32 * 8, 24),
        "responder_resources": (35 * 8, 8),
        "local_eecn": (36 * 8, 24),
        "initiator_depth": (39 * 8, 8),
        "remote_eecn": (40 * 8, 24),
        "remote_cm_timeout": (43 * 8, 5),
        "transport_service": (43 * 8 + 5, 2),
        "flow_control": (43 * 8 + 7, 1),
        "starting_psn": (44 * 8, 24),
        "local_cm_timeout": (47 * 8, 5),
        "retry_count": (47 * 8 + 5, 3),
        "pkey": (48 * 8, 16),
        "path_mtu": (50 * 8, 4),
        "rdc_exists": (50 * 8 + 4, 1),
        "rnr_retry_count": (50 * 8 + 5, 3),
        "max_cm_retries": (51 * 8, 4),
        "srq": (51 * 8 + 4, 1),
        "extended_transport": (51 * 8 + 5, 3),
        "primary_local_lid": (52 * 8, 16),
        "primary_remote_lid": (54 * 8, 16),
        "primary_local_gid": (56 * 8, 128),
        "primary_remote_gid": (72 * 8, 128),
        "primary_flow_label": (88 * 8, 20),
        "primary_packet_rate": (91 * 8 + 2, 6),
        "primary_traffic_class": (92 * 8, 8),
        "primary_hop_limit": (93 * 8, 8),
        "primary_sl": (94 * 8, 4),
        "primary_subnet_local": (94 * 8 + 4, 1),
        "primary_ack_timeout": (95 * 8, 5),
        "alternate_local_lid": (96 * 8, 16),
        "alternate_remote_lid": (98 * 8, 16),
        "alternate_local_gid": (100 * 8, 128),
        "alternate_remote_gid": (116 * 8, 128),
        "alternate_flow_label": (132 * 8, 20),
        "alternate_packet_rate": (135 * 8 + 2, 6),
        "alternate_traffic_class": (136 * 8, 8),
        "alternate_hop_limit": (137 * 8, 8),
        "alternate_sl": (138 * 8, 4),
        "alternate_subnet_local": (138 * 8 + 4, 1),
        "alternate_ack_timeout": (139 * 8, 5),
        "sap_supported": (139 * 8 + 5, 1),
    },
    "MRA": {
        "local_comm_id": (0, 32),
        "remote_comm_id": (4 * 8, 32),
        "message": (8 * 8, 2),
        "service_timeout": (9 * 8, 5),
    },
    "REJ": {
        "local_comm_id": (0, 32),
        "remote_comm_id": (4 * 8, 32),
        "message": (8 * 8, 2),
        "information_bytes": (9 * 8, 7),
        "reason": (10 * 8, 16),
    },
    "REP": {
        "local_comm_id": (0, 32),
        "remote_comm_id": (4 * 8, 32),
        "local_qkey": (8 * 8, 32),
        "local_qpn": (12 * 8, 24),
        "local_eecn": (16 * 8, 24),
        "starting_psn": (20 * 8, 24),
        "responder_resources": (24 * 8, 8),
        "initiator_depth": (25 * 8, 8),
        "target_ack_delay": (26 * 8, 5),
        "failover_accepted": (26 * 8 + 5, 2),
        "flow_control": (26 * 8 + 7, 1),
        "rnr_retry_count": (27 * 8, 3),
        "srq": (27 * 8 + 3, 1),
        "local_ca_guid": (28 * 8, 64),
    },
    "RTU": {"local_comm_id": (0, 32), "remote_comm_id": (4 * 8, 32)},
    "DREQ": {
        "local_comm_id": (0, 32),
        "remote_comm_id": (4 * 8, 32),
        "remote_qpn": (8 * 8, 24),
    },
    "DREP": {"local_comm_id": (0, 32), "remote_comm_id": (4 * 8, 32)},
    "LAP": {
        "local_comm_id": (0, 32),
        "remote_comm_id": (4 * 8, 32),
        "remote_qpn": (12 * 8, 24),
        "remote_cm_timeout": (15 * 8, 5),
        "alternate_local_lid": (20 * 8, 16),
        "alternate_remote_lid": (22 * 8, 16),
        "alternate_local_gid": (24 * 8, 128),
        "alternate_remote_gid": (40 * 8, 128),
        "alternate_flow_label": (56 * 8, 20),
        "alternate_traffic_class": (59 * 8, 8),
        "alternate_hop_limit": (60 * 8, 8),
        "alternate_packet_rate": (61 * 8 + 2, 6),
        "alternate_sl": (62 * 8, 4),
        "alternate_subnet_local": (62 * 8 + 4, 1),
        "alternate_ack_timeout": (63 * 8, 5),
    },
    "APR": {
        "local_comm_id": (0, 32),
        "remote_comm_id": (4 * 8, 32),
        "information_bytes": (8 * 8, 8),
        "status": (9 * 8, 8),
    },
    "SIDR_REQ": {"request_id": (0, 32), "pkey": (4 * 8, 16), "service_id": (8 * 8, 64)},
    "SIDR_REP": {
        "request_id": (0, 32),
        "status": (4 * 8, 8),
        "information_bytes": (5 * 8, 8),
        "qpn": (8 * 8, 24),
        "service_id": (12 * 8, 64),
        "qkey": (20 * 8, 32),
    },
}
# where private data begins
PRIVATE = {
    "REQ": 140,
    "MRA": 10,
    "REJ": 84,
    "REP": 36,
    "RTU": 8,
    "DREQ": 12,
    "DREP": 8,
    "LAP": 64,
    "APR": 84,
    "SIDR_REQ": 16,
    "SIDR_REP": 96,
}


@pytest.mark.parametrize("name", MESSAGES)
def test_each_field_of_a_message_is_where_the_specification_has_it(name: str) -> None:
    layout = MESSAGES[name].layout
    at, places = 0, {}
    for field in layout.fields:
        if not field.name.startswith(("resv", "primary_resv", "alternate_resv")):
            places[field.name] = (at, field.bits)
        at += field.bits
    assert places == PLACES[name]
    assert layout.bytes + MESSAGES[name].information_bytes_max == PRIVATE[name]


def values_of(layer: type[LayoutLayer]) -> st.SearchStrategy[dict[str, Any]]:
    address = st.binary(min_size=16, max_size=16).map(lambda packed: inet_ntop(AF_INET6, packed))
    return st.fixed_dictionaries(
        {
            field.name: address if field.kind == "ipv6" else st.integers(0, field.largest)
            for field in layer.layout.fields
        }
    )


@pytest.mark.parametrize("name", MESSAGES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_message_that_is_built_is_dissected(name: str, data: st.DataObject) -> None:
    message = MESSAGES[name]
    values = data.draw(values_of(message))
    if message.information_bytes_max:
        size = message.information_bytes_max
        values["information"] = data.draw(st.binary(min_size=size, max_size=size))
    private_bytes = tables.MAD_BYTES - MAD.layout.bytes - PRIVATE[name]
    load = data.draw(st.binary(min_size=private_bytes, max_size=private_bytes))
    head = data.draw(values_of(MAD)) | {"mgmt_class": tables.COMM_MGT}
    if message in (REQ, SIDR_REQ) and data.draw(st.booleans()):
        values["service_id"] = data.draw(st.integers(1 << 24, (2 << 24) - 1))
        above: Any = IPCM(**data.draw(values_of(IPCM))) / Raw(load[IPCM.layout.bytes :])
    else:
        above = Raw(load)
    attribute = next(code for code, of in tables.ATTRIBUTES.items() if of == name)
    packet = MAD(**head | {"attribute_id": attribute}) / message(**values) / above
    frame = bytes(packet)
    found = MAD(frame)
    assert len(frame) == tables.MAD_BYTES
    assert bytes(found) == frame
    addressed = message in (REQ, SIDR_REQ) and values["service_id"] >> 24 == 1
    assert (IPCM in found) is addressed
    if addressed is (above.name == "IPCM"):
        assert found == packet


@pytest.mark.parametrize("layer", [MAD, IPCM, *MESSAGES.values()], ids=lambda layer: layer.__name__)
@settings(max_examples=50, deadline=None)
@given(data=st.binary(min_size=1, max_size=260))
def test_random_bytes_are_a_message_or_scapys_own_error(
    layer: type[LayoutLayer], data: bytes
) -> None:
    needed = layer.layout.bytes + getattr(layer, "information_bytes_max", 0)
    if len(data) < needed:
        with pytest.raises(Scapy_Exception, match=f"{needed} bytes are needed, {len(data)} are"):
            layer(data)
    elif layer is MAD:
        assert bytes(layer(data)) == data.ljust(tables.MAD_BYTES, b"\0") or len(data) < 256
    else:
        assert bytes(layer(data)) == data


def test_a_message_on_qp_1_fills_in_all_that_is_fixed() -> None:
    packet = IP(dst="10.0.0.2") / UDP() / BTH(dqpn=1) / DETH() / MAD(transaction_id=7) / REQ()
    found = IP(bytes(packet))
    assert BTH.fields_desc[0].i2s[found.opcode] == "UD_SEND_ONLY"
    assert (found[DETH].qkey, found[DETH].srcqp) == (GSI_QKEY, 1)
    mad = found[MAD]
    assert (mad.mgmt_class, mad.class_version, mad.method, mad.attribute_id) == (7, 2, 3, 0x10)
    assert found[UDP].len == 8 + 12 + 8 + 256 + 4
    assert len(found[REQ].load) == 92


def test_only_qp_1_gets_mads() -> None:
    packet = BTH(dqpn=2, opcode="UD_SEND_ONLY") / DETH() / Raw(bytes(256))
    assert MAD not in BTH(bytes(packet))
    packet.dqpn = 1
    del packet.icrc
    assert MAD in BTH(bytes(packet))


def test_immediate_data_on_qp_1_is_no_mad() -> None:
    packet = BTH(dqpn=1, opcode="UD_SEND_ONLY_WITH_IMMEDIATE") / DETH() / ImmDt(data=5) / b"1234"
    found = BTH(bytes(packet))
    assert (found[ImmDt].data, found.load) == (5, b"1234")


def test_a_rejection_names_its_reason() -> None:
    packet = MAD() / REJ(reason="INVALID_SERVICE_ID", message="REQ") / b"because"
    found = MAD(bytes(packet))
    assert (found.reason, found.load[:8]) == (8, b"because\0")
    assert "INVALID_SERVICE_ID" in found.show(dump=True)
