# SPDX-License-Identifier: BSD-3-Clause
"""MCTP over a stream: messages arrive in any cut, and errors end the stream."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from nupa.cxl.fm import mctp, messages
from nupa.cxl.fm.mctp import Assembler, FramingError, MctpMessage, MessageType, encode
from nupa.cxl.fm.messages import Cci

KINDS = st.sampled_from(MessageType)
ANY = st.tuples(KINDS, st.binary(max_size=200), st.integers(0, 7), st.booleans()).map(
    lambda values: MctpMessage(*values)
)


def packet(flags: int, body: bytes = b"\7x", version: int = 1, to: int = mctp.SWITCH) -> bytes:
    return (4 + len(body)).to_bytes(2, "little") + bytes([version, to, mctp.MANAGER, flags]) + body


@given(st.lists(ANY, max_size=5), st.integers(1, 64), st.integers(1, 50))
def test_messages_arrive_whole_however_the_stream_is_cut(
    sent: list[MctpMessage], packet_bytes: int, piece: int
) -> None:
    stream = b"".join(encode(message, packet_bytes) for message in sent)
    assembler = Assembler()
    found = [
        message
        for at in range(0, len(stream), piece)
        for message in assembler.feed(stream[at : at + piece])
    ]
    assert found == sent


def test_packets_of_two_tags_may_be_mixed() -> None:
    stream = packet(0x88, b"\7a") + packet(0x89, b"\x08b") + packet(0x59, b"B") + packet(0x58, b"A")
    first, second = Assembler().feed(stream)
    assert (first.body, first.type, first.tag) == (b"bB", MessageType.CCI, 1)
    assert (second.body, second.type, second.tag) == (b"aA", MessageType.FM_API, 0)


def test_the_longest_message_passes_and_one_byte_more_does_not() -> None:
    body = bytes(mctp.MESSAGE_BYTES - 1)
    (found,) = Assembler().feed(encode(MctpMessage(MessageType.FM_API, body)))
    assert found.body == body
    with pytest.raises(ValueError, match="at most"):
        encode(MctpMessage(MessageType.FM_API, body + b"x"))
    with pytest.raises(ValueError, match="tag 8"):
        encode(MctpMessage(MessageType.FM_API, b"", 8))
    stream = b""
    for number in range(17):
        first = 0x80 if number == 0 else 0
        stream += packet(first | (number & 3) << 4 | 8, bytes([7]) * mctp.PACKET_BYTES)
    with pytest.raises(FramingError, match="more than"):
        list(Assembler().feed(stream))


@pytest.mark.parametrize(
    "stream",
    [
        b"\0\0",  # no header
        b"\4\0",  # nothing behind it
        (4 + mctp.PACKET_BYTES + 1).to_bytes(2, "little"),
        packet(0xC8, version=2),
        packet(0xC8, to=77),
        packet(0x48),  # no start
        packet(0x88) + packet(0x88),  # a start within a message
        packet(0x88) + packet(0x68),  # a packet is missing
        packet(0xC8, b"\1x"),  # another message type
        packet(0xC8, b"\x87x"),  # an integrity check that we do not have
    ],
)
def test_bytes_that_are_not_mctp_are_refused(stream: bytes) -> None:
    with pytest.raises(FramingError):
        list(Assembler().feed(stream))


@given(st.binary(max_size=300))
def test_random_bytes_are_messages_or_an_error(stream: bytes) -> None:
    try:
        assert all(len(found.body) < len(stream) for found in Assembler().feed(stream))
    except FramingError:
        assert stream


@given(
    st.builds(
        Cci,
        st.integers(0, 0xFFFF),
        st.binary(max_size=64),
        st.integers(0, 255),
        st.booleans(),
        st.integers(0, 0xFFFF),
        st.integers(0, 0xFFFF),
        st.booleans(),
    )
)
def test_a_cci_message_is_read_as_it_was_written(message: Cci) -> None:
    packed = message.pack()
    assert messages.unpack(packed) == message
    assert len(packed) == 12 + len(message.payload)
    with pytest.raises(FramingError):
        messages.unpack(packed + b"x")
    with pytest.raises(FramingError):
        messages.unpack(packed[:11])


def test_a_cci_header_is_laid_out_as_the_specification_has_it() -> None:
    packed = Cci(0x5201, b"abc", 9, True, 2, 0x1234, True).pack()
    assert packed == bytes.fromhex("01 09 00 01 52 03 00 80 02 00 34 12") + b"abc"
    Cci(0, bytes(messages.PAYLOAD_BYTES)).pack()
    with pytest.raises(ValueError, match="at most"):
        Cci(0, bytes(messages.PAYLOAD_BYTES + 1)).pack()
