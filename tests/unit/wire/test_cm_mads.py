# SPDX-License-Identifier: BSD-3-Clause
"""Datagrams of connection management: against the kernel's, tshark, and IBTA's places of fields."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from random import Random

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import rdpcap, wrpcap

from nupa.packet.scapy.cm import IPCM, MAD, MESSAGES, REJ, REQ, SIDR_REP, SIDR_REQ
from nupa.packet.scapy.transport import BTH, DETH, GSI_QKEY
from nupa.packet.tables.cm import ATTRIBUTES
from tests.unit.packet import tshark
from tests.unit.packet.test_cm import PLACES, PRIVATE
from tests.unit.packet.test_tshark import compare
from tests.unit.wire import mads

HEADER_BITS = 24 * 8
BY_NAME = {name: attribute for attribute, name in ATTRIBUTES.items()}
#: The names of IBTA's fields where csrc has one name for those of several messages.
NAMES = {
    "local_id": "local_comm_id",
    "remote_id": "remote_comm_id",
    "service": "service_id",
    "ca_guid": "local_ca_guid",
    "qkey": "local_qkey",
    "qpn": "local_qpn",
    "eecn": "local_eecn",
    "psn": "starting_psn",
    "remote_timeout": "remote_cm_timeout",
    "local_timeout": "local_cm_timeout",
    "retries": "max_cm_retries",
    "transport": "transport_service",
    "about": "message",
    "local_gid": "primary_local_gid",
    "remote_gid": "primary_remote_gid",
    "local_lid": "primary_local_lid",
    "remote_lid": "primary_remote_lid",
    "rate": "primary_packet_rate",
} | {
    name: f"primary_{name}"
    for name in ("flow_label", "traffic_class", "hop_limit", "sl", "subnet_local", "ack_timeout")
}
OF_SIDR = {"qkey": "qkey", "qpn": "qpn", "local_id": "request_id", "remote_id": "request_id"}
#: Fields that are 0 in all that is sent: failover, reliable datagrams, alternate paths.
ABSENT = {
    "REQ": {"remote_eecn", "rdc_exists", "sap_supported"},
    "REP": {"failover_accepted"},
}


def name_of(message: str, field: mads.Field) -> str:
    if message.startswith("SIDR") and field.name in OF_SIDR:
        return OF_SIDR[field.name]
    if message == "DREQ" and field.name == "qpn":
        return "remote_qpn"
    return NAMES.get(field.name, field.name)


def test_each_field_is_where_the_specification_has_it() -> None:
    found: defaultdict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for field in mads.fields():
        if field.attribute and field.name != "information":
            message = ATTRIBUTES[field.attribute]
            place = (field.at - HEADER_BITS, field.bits)
            found[message][name_of(message, field)] = place
    assert set(found) == set(MESSAGES) - {"LAP", "APR"}
    for message, places in found.items():
        wanted = {
            name: place
            for name, place in PLACES[message].items()
            if name not in ABSENT.get(message, ()) and not name.startswith("alternate")
        }
        assert places == wanted


def any_values(attribute: int, random: Random) -> dict[int, int]:
    """Returns a value that may be for each field, and largest ones at times."""
    values = {}
    for field in mads.fields():
        if field.bits > 64 or field.attribute not in (0, attribute):
            continue
        largest = (1 << field.bits) - 1
        least = min(2, largest)
        values[field.index] = largest if random.random() < 0.2 else random.randint(least, largest)
        if field.bits == 1:
            values[field.index] = random.randint(0, 1)
        elif field.name in ("path_mtu", "about", "information_bytes"):
            values[field.index] = random.randint(1, 2)
        elif field.name == "service":
            values[field.index] = 1 << 24 | random.getrandbits(24)
    return values


@pytest.mark.parametrize("message", sorted(set(MESSAGES) - {"LAP", "APR"}))
def test_any_values_are_read_by_tshark_and_scapy_as_they_were_meant(
    message: str, tmp_path: Path
) -> None:
    random = Random(message)
    attribute = BY_NAME[message]
    sent = []
    for _ in range(12):
        values, data = any_values(attribute, random), random.randbytes(mads.BYTES)
        sent.append((values, data, mads.written(attribute, values, data)))
    macs = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}  # else scapy asks by ARP
    below = Ether(**macs) / IP(src="192.0.2.1", dst="192.0.2.2") / UDP(dport=4791)
    head = BTH(opcode=0x64, dqpn=1) / DETH(qkey=GSI_QKEY, srcqp=1)
    wrpcap(str(tmp_path / "x.pcap"), [below / head / Raw(mad) for *_, mad in sent])
    packets = rdpcap(str(tmp_path / "x.pcap"))
    said = tshark.dissect(tmp_path / "x.pcap")
    for (values, data, mad), packet, theirs in zip(sent, packets, said, strict=True):
        assert "_ws.malformed" not in theirs
        compare(packet, theirs)
        layer = packet[MESSAGES[message]]
        assert packet[MAD].transaction_id == values[4]
        for field in mads.fields():
            if field.attribute == attribute and field.bits <= 64:
                assert layer.getfieldval(name_of(message, field)) == values[field.index]
        at = 24 + PRIVATE[message] + (36 if IPCM in packet else 0)
        assert bytes(packet[MAD])[at : mads.BYTES] == data[: mads.BYTES - at]
        assert mads.again(mad) == mad


def test_what_the_kernel_says_is_read_and_written_again_byte_for_byte() -> None:
    kernel = mads.of_the_kernel()
    assert [ATTRIBUTES[mad[17]] for mad in kernel] == (
        ["REQ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP"]
    )
    for mad in kernel:
        assert mads.again(mad) == mad


def test_what_the_kernel_says_survives_the_message_of_the_engine() -> None:
    for mad in mads.of_the_kernel():
        ours, theirs = MAD(mads.through(mad)), MAD(mad)
        name = ATTRIBUTES[mad[17]]
        # Facts of their path and adapter, of which the engine has its own.
        for layer in (ours, theirs):
            if name == "REQ":
                layer[REQ].primary_flow_label = layer[REQ].primary_packet_rate = 0
            if name == "REP":
                layer["REP"].target_ack_delay = 0
        assert bytes(ours) == bytes(theirs), name


def test_each_other_value_of_a_field_that_is_fixed_is_refused() -> None:
    random = Random(3)
    for mad in mads.of_the_kernel():
        for at in range(4):  # version, class, class version, method
            for bit in range(8):
                wrong = bytearray(mad)
                wrong[at] ^= 1 << bit
                assert mads.again(bytes(wrong)) is None
        for attribute in (0, 0x0F, 0x19, 0x1A, 0x1B, random.randint(0x100, 0xFFFF)):
            assert mads.again(mad[:16] + attribute.to_bytes(2, "big") + mad[18:]) is None
        assert mads.again(mad[:-1]) is None
        assert mads.again(mad + b"\0") is None


def test_a_value_past_the_limit_of_a_field_is_refused() -> None:
    req, rep = (MAD(mad) for mad in mads.of_the_kernel()[:2])
    for name, good, wrong in (
        ("local_comm_id", 1, 0),
        ("local_qpn", 2, 1),
        ("path_mtu", 5, 6),
        ("path_mtu", 1, 0),
    ):
        for number, taken in ((good, True), (wrong, False)):
            changed = req.copy()
            setattr(changed[REQ], name, number)
            assert (mads.again(bytes(changed)) is not None) == taken, name
    rep["REP"].remote_comm_id = 0
    assert mads.again(bytes(rep)) is None
    for name, good, wrong in (("major", 0, 1), ("ip_version", 6, 5), ("ip_version", 4, 0)):
        for number, taken in ((good, True), (wrong, False)):
            changed = req.copy()
            setattr(changed[IPCM], name, number)
            assert (mads.again(bytes(changed)) is not None) == taken, name


def test_a_request_is_steered_by_its_service_and_all_else_by_the_slot() -> None:
    req, rep, rtu, dreq, drep, sidr_req, sidr_rep = mads.of_the_kernel()
    assert mads.steer(req) == (mads.TO_SERVICE, (0, 0x0106, 0x1C06, 0xFFFF, 0))
    assert mads.steer(sidr_req) == (mads.TO_SERVICE, (0, 0x0111, 0x1C06, 0xFFFF, 0))
    for mad in (rep, rtu, dreq, drep):
        number = int.from_bytes(mad[28:32], "big")
        assert mads.steer(mad) == (mads.TO_SLOT, (number & 0x3FF, 0, 0, 0, 0))
    slot = int.from_bytes(sidr_rep[24:28], "big") & 0x3FF
    assert mads.steer(sidr_rep) == (mads.TO_SLOT, (slot, 0, 0, 0, 0))
    assert mads.steer(rep[:28] + bytes(4) + rep[32:])[0] == mads.DROP
    assert mads.steer(rep[:30] + bytes(2) + rep[32:])[0] == mads.DROP  # slot 0 is none
    assert mads.steer(req[:100])[0] == mads.DROP
    other = MAD(req)
    other[REQ].service_id = 0x1000000001061C06
    assert mads.steer(bytes(other))[0] == mads.TO_NOBODY


def test_a_datagram_for_nobody_is_refused_as_the_specification_has_it() -> None:
    req, rep, rtu, dreq, drep, sidr_req, sidr_rep = mads.of_the_kernel()
    answer = MAD(mads.refusal(req))
    assert (answer[REJ].reason, answer[REJ].message) == (8, 0)
    assert answer[REJ].remote_comm_id == MAD(req)[REQ].local_comm_id
    assert answer.transaction_id == MAD(req).transaction_id
    answer = MAD(mads.refusal(rep))
    assert (answer[REJ].reason, answer[REJ].message) == (6, 1)
    # The kernel finds the id to be refused by both numbers.
    assert answer[REJ].local_comm_id == MAD(rep)["REP"].remote_comm_id
    answer = MAD(mads.refusal(dreq))
    assert answer["DREP"].remote_comm_id == MAD(dreq)["DREQ"].local_comm_id
    answer = MAD(mads.refusal(sidr_req))
    assert (answer[SIDR_REP].status, answer[SIDR_REP].qpn) == (1, 0)
    assert answer[SIDR_REP].request_id == MAD(sidr_req)[SIDR_REQ].request_id
    assert [mads.refusal(mad) for mad in (rtu, drep, sidr_rep, req[:17] + b"\x12" + req[18:])] == (
        [None] * 4
    )
