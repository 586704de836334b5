# SPDX-License-Identifier: BSD-3-Clause
"""Filters of captures: matches, errors, and no code but their own."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import ARP, Ether

from nupa.capture.fields import FIELDS, fields_text
from nupa.capture.filter import EXPRESSION_CHARS_MAX, Filter, FilterError
from nupa.capture.view import View
from nupa.packet.decode import fast, records
from nupa.packet.pcapng.reader import INBOUND, OUTBOUND, Reader, Writer
from nupa.packet.scapy.transport import AETH, BTH, DETH, RETH
from nupa.packet.tables import record
from nupa.packet.tables.queue import CQE, WQE
from nupa.packet.tables.record import LINKTYPE_ETHERNET, LINKTYPE_NUPA, Flag, Kind, Level

BELOW = Ether(dst="02:00:0a:00:00:02") / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(chksum=0)
BACK = Ether(dst="02:00:0a:00:00:01") / IP(src="10.0.0.2", dst="10.0.0.1") / UDP(chksum=0)
NET = Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=4000, dport=80)


def _nupa(level: Level, kind: Kind, transfer: int, flags: int, body: bytes) -> bytes:
    return record.pack(level, kind, record.Direction.OUTBOUND, flags, transfer) + body


@pytest.fixture(scope="module")
def capture() -> bytes:
    """A file with a packet of each kind, in the order of PACKETS."""
    file = io.BytesIO()
    writer = Writer(file)
    numbers = {
        (host, link): writer.add_interface(f"{host}/1", link)
        for host in ("host0", "host1")
        for link in (LINKTYPE_ETHERNET, LINKTYPE_NUPA)
    }
    wrong = bytearray(bytes(BELOW / BTH(opcode="RC_SEND_ONLY", dqpn=0x11, psn=3) / b"data"))
    wrong[-1] ^= 1
    entries = [
        ("host0", BELOW / BTH(opcode="RC_SEND_ONLY", dqpn=0x11, psn=7, ackreq=1) / b"data", ""),
        ("host1", BACK / BTH(opcode="RC_ACKNOWLEDGE", dqpn=0x12, psn=7) / AETH(msn=1), ""),
        ("host1", BACK / BTH(opcode="RC_ACKNOWLEDGE", dqpn=0x12, psn=8) / AETH(syndrome=0x62), ""),
        ("host0", BELOW / BTH(opcode="RC_RDMA_WRITE_ONLY", psn=0) / RETH(rkey=5), "nupa: dropped"),
        ("host0", BELOW / BTH(opcode="UD_SEND_ONLY", dqpn=0x13) / DETH(srcqp=0x14), ""),
        ("host0", bytes(wrong), ""),
        ("host0", NET, ""),
        ("host1", Ether() / ARP(), ""),
    ]
    for host, packet, comment in entries:
        flags = INBOUND if host == "host1" else OUTBOUND
        number = numbers[host, LINKTYPE_ETHERNET]
        writer.write(number, 1, bytes(packet), flags=flags, packet_id=9, comment=comment)
    wqe = WQE.encode(bytes=40, opcode=2, number=0x11, wr_id=77, length=4)
    cqe = CQE.encode(status=12, opcode=0, qpn=0x11, wr_id=77)
    for kind, flag, body in ((Kind.WQE, Flag.FIRST, wqe), (Kind.CQE, Flag.DELAYED, cqe)):
        data = _nupa(Level.QUEUE, kind, 9, flag, body)
        writer.write(numbers["host0", LINKTYPE_NUPA], 1, data, flags=OUTBOUND, packet_id=9)
    writer.close()
    return file.getvalue()


SEND, ACK, NAK, WRITE, DATAGRAM, WRONG, TCP_FRAME, ARP_FRAME, WORK, COMPLETION = range(10)
TRANSPORT = [SEND, ACK, NAK, WRITE, DATAGRAM, WRONG]
ALL = list(range(10))


@pytest.fixture(scope="module")
def matching(capture: bytes) -> Callable[[str], list[int]]:
    def match(text: str) -> list[int]:
        compiled = Filter(text)
        (batch,) = Reader(io.BytesIO(capture)).batches()
        return compiled.matches(View(batch, check_icrc=compiled.checks_icrc))

    return match


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("psn == 7", [SEND, ACK]),
        ("5 < psn < 8", [SEND, ACK]),
        ("7 < psn", [NAK]),
        ("psn > 7 or syndrome", [NAK]),
        ("psn == msn", []),
        ("dqpn == 0x11 and opcode == RC_SEND_ONLY", [SEND, WRONG]),
        ("opcode == rc_send_only", [SEND, WRONG]),
        ("opcode == 'RC_SEND_ONLY'", [SEND, WRONG]),
        ("opcode in (RC_ACKNOWLEDGE, UD_SEND_ONLY)", [ACK, NAK, DATAGRAM]),
        ("opcode in [4]", [SEND, WRONG]),
        ("opcode not in (RC_ACKNOWLEDGE,)", [SEND, WRITE, DATAGRAM, WRONG]),
        ("opcode != RC_ACKNOWLEDGE", [SEND, WRITE, DATAGRAM, WRONG]),
        ("opcode in ()", []),
        ("syndrome >= 0x60", [NAK]),
        ("ackreq", [SEND]),
        ("ackreq == 0 and level == transport", [ACK, NAK, WRITE, DATAGRAM, WRONG]),
        ("source_qpn == 0x14", [DATAGRAM]),
        ("rkey == 5", [WRITE]),
        ("dropped", [WRITE]),
        ("delayed or first", [WORK, COMPLETION]),
        ("not dropped and psn == 0", [DATAGRAM]),
        ("icrc_state == wrong", [WRONG]),
        ("host == host1", [ACK, NAK, ARP_FRAME]),
        ('port == "host1/1"', [ACK, NAK, ARP_FRAME]),
        ('host in ("host0",) and level == net', [TCP_FRAME]),
        ("direction == inbound", [ACK, NAK, ARP_FRAME]),
        ("transfer == 9", ALL),
        ("transfer", ALL),
        ("level == net", [TCP_FRAME, ARP_FRAME]),
        ("level == queue", [WORK, COMPLETION]),
        ("kind == wqe", [WORK]),
        ("kind == ethernet", [*TRANSPORT, TCP_FRAME, ARP_FRAME]),
        ("wr_id == 77", [WORK, COMPLETION]),
        ("wr_opcode == send", [WORK]),
        ("wc_opcode == send", [COMPLETION]),
        ("status == RETRY_EXC_ERR", [COMPLETION]),
        ("status != success", [COMPLETION]),
        ("qpn == 0x11 or dqpn == 0x11", [SEND, WRONG, WORK, COMPLETION]),
        ('source == "10.0.0.2"', [ACK, NAK]),
        ('source == "10.0.0.1" and destination_port == 80', [TCP_FRAME]),
        ("source == destination", []),
        ("ethertype == arp", [ARP_FRAME]),
        ("protocol == tcp", [TCP_FRAME]),
        ("captured_bytes == original_bytes", ALL),
        ("psn\n==\n7", [SEND, ACK]),
    ],
)
def test_a_filter_finds_the_packets_that_it_describes(
    matching: Callable[[str], list[int]], text: str, expected: list[int]
) -> None:
    assert matching(text) == expected


def test_a_field_that_a_packet_does_not_have_compares_with_nothing(
    matching: Callable[[str], list[int]],
) -> None:
    assert matching("psn < 100") == matching("psn >= 0") == TRANSPORT
    assert matching("wr_id < 100") == [WORK, COMPLETION]
    assert set(matching("not psn < 100")) == set(ALL) - set(TRANSPORT)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("psnn == 3", "there is no field `psnn`: near are psn,"),
        ("quue == sq", "near are queue"),
        ("frobnicate", "`nupa capture --fields` lists all"),
        ("opcode == RC_SEND", "opcode is never 'RC_SEND': near are RC_SEND_ONLY"),
        ("level == quee", "level is never 'quee': near are queue"),
        ("psn == psnn", "psn is compared with 'psnn': it is a number"),
        ("psn = 3", "compare with ==, not ="),
        ("psn == 3 && dqpn == 4", "write `and`, `or`, `not`"),
        ("!dropped", "write `and`, `or`, `not`"),
        ("source == 10.0.0.1", "quote addresses"),
        ("source == 5", "source is an address"),
        ("host == host0/1", 'letters, digits and _: host == "…"'),
        ("host", 'compare host with something: host == "…"'),
        ("host > host0", "host is a name: == or !="),
        ("psn == host", "psn and host cannot be compared"),
        ("psn in 5", "after `in` comes a list"),
        ("psn in opcode", "after `in` comes a list"),
        ("psn is 5", "after `in` comes a list"),
        ("psn == 1.5", "take a whole number or a name"),
        ("psn == True", "take a whole number or a name"),
        ("psn == None", "take a whole number or a name"),
        ("psn == -1", "is not a number or a name"),
        ("psn + 1 == 3", "`psn + 1` stands where a field belongs"),
        ("1 == 2", "stands where a field belongs"),
        ("(psn", "at character"),
        ("psn == 3; psn", "it ends or goes on where it should not"),
        ("psn\0", "it contains a null character"),
        ("(" * 300 + "psn" + ")" * 300, "goes on where it should not"),
        ("not " * 100 + "psn", "nested too deeply: 32 levels"),
        ("x" * (EXPRESSION_CHARS_MAX + 1), f"at most {EXPRESSION_CHARS_MAX}"),
    ],
)
def test_what_is_no_filter_is_refused_with_what_to_do(text: str, why: str) -> None:
    with pytest.raises(FilterError, match=re.escape(why)):
        Filter(text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "psn.__class__ == 3",
        "psn[0] == 3",
        "f'{psn}' == 'x'",
        "(lambda: psn)() == 3",
        "[psn for psn in (1, 2)]",
        "psn if psn else dqpn",
        "(psn := 5)",
        "await psn",
        "*psn",
        "psn == (1, 2)",
        "opcode in (psn, __builtins__)",
        "open",
        "enumerate == 1",
        "k0 == 1",
        "h_psn == 1",
    ],
)
def test_nothing_but_what_is_listed_gets_through(text: str) -> None:
    with pytest.raises(FilterError):
        Filter(text)


def test_strings_stay_strings(matching: Callable[[str], list[int]]) -> None:
    assert matching('port == "h_psn) or (1"') == []
    assert matching("host != '\" or True or \"'") == ALL


@given(st.text(alphabet="psnhotkind ()[]=<>!&|'\"0123456789.,x_+-*andornoti", max_size=60))
def test_any_text_is_a_filter_or_a_filter_error(text: str) -> None:
    with suppress(FilterError):
        assert Filter(text).text == text


def test_hosts_and_ports_that_are_not_there_are_named() -> None:
    names = {"host": ["host0", "host1"], "port": ["host0/1"]}
    assert Filter("host == host0", names).columns == ("m_host",)
    with pytest.raises(FilterError, match="there is no host 'host7': near are host"):
        Filter("host == host7", names)
    with pytest.raises(FilterError, match="there is no port 'host9/1'"):
        Filter('port == "host9/1"', names)


def test_a_host_may_bear_the_name_of_a_field() -> None:
    assert Filter("host == psn", {"host": ["psn"]}).columns == ("m_host",)


def test_every_column_of_the_decoders_can_be_asked_for() -> None:
    known = " ".join(f"{field.code} {field.when}" for field in FIELDS.values())
    found = set(re.findall(r"\b[hn]_[a-z_]+\b", known))
    # Offsets and versions are for programs; the block says the direction.
    assert {f"h_{name}" for name in fast.COLUMNS} - found == {"h_payload_offset"}
    left = {"n_payload_offset", "n_version", "n_direction"}
    assert {f"n_{name}" for name in records.COLUMNS} - found == left


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_can_be_compared(matching: Callable[[str], list[int]], name: str) -> None:
    field = FIELDS[name]
    value = {"name": '"x"', "address": '"::1"'}.get(field.type, "0")
    matching(f"{name} == {value}")
    for value_name in list(field.values)[:3]:
        matching(f"{name} == '{value_name}'")


def test_the_list_of_fields_has_each_of_them() -> None:
    listed = fields_text()
    assert all(re.search(rf"^  {name}\s", listed, re.MULTILINE) for name in FIELDS)
