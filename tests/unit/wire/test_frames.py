# SPDX-License-Identifier: BSD-3-Clause
"""A wire's medium of frames, with this test as its guest; scapy makes and reads the frames."""

from __future__ import annotations

import ctypes
import errno
import ipaddress
import os
import select
import socket
import stat
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import (
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    IPv6,
)
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

FACES = Path(os.environ.get("NUPA_TEST_FACES", Path(__file__).parents[3] / "build/dev/tests"))
face = ctypes.CDLL(str(FACES / "libframes_face.so"), use_errno=True)
RECEIVE = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_uint8 * 32),
    *[ctypes.c_uint32] * 4,
    ctypes.c_void_p,
    ctypes.c_uint32,
)
DEADLINE_S = 20.0
GUEST_MAC = "52:54:00:78:00:01"
FRAME_BYTES_MAX = 14 + 40 + 65535
OUT_BYTES = 4 << 20


def gid(address: str) -> bytes:
    parsed = ipaddress.ip_address(address)
    return parsed.packed if parsed.version == 6 else bytes(10) + b"\xff\xff" + parsed.packed


class Medium:
    """The medium, and what it received."""

    def __init__(self, path: Path, local: str, remote: str) -> None:
        self.received: list[tuple[bytes, int, int, int, int, bytes]] = []
        self.guests: list[Guest] = []
        self._callback = RECEIVE(self._take)
        self._frames = ctypes.c_void_p()
        status = face.face_frames_open(
            ctypes.byref(self._frames), str(path).encode(), gid(local), gid(remote), self._callback
        )
        if status:
            raise OSError(-status, errno.errorcode[-status])
        self.fd = face.face_frames_fd(self._frames)

    def _take(
        self,
        addresses: ctypes._Pointer[ctypes.Array[ctypes.c_uint8]],
        identification: int,
        port: int,
        tos: int,
        ttl: int,
        data: int,
        size: int,
    ) -> None:
        packet = ctypes.string_at(data, size)
        self.received.append((bytes(addresses[0]), identification, port, tos, ttl, packet))

    def close(self) -> None:
        for guest in self.guests:
            guest.socket.close()
        face.face_frames_close(self._frames)

    def turn(self) -> None:
        """Does the work that there is."""
        while select.select([self.fd], [], [], 0)[0]:
            face.face_frames_turn(self._frames)

    def send(self, data: bytes, identification: int = 0) -> int:
        return int(
            face.face_frames_send(self._frames, identification, 4791, 2, 64, data, len(data))
        )

    @property
    def reachable(self) -> bool:
        return bool(face.face_frames_reachable(self._frames))

    @property
    def counters(self) -> dict[str, int]:
        values = (ctypes.c_uint64 * 5)()
        face.face_frames_counters(self._frames, values)
        return dict(
            zip(("received", "sent", "malformed", "foreign", "dropped"), values, strict=True)
        )


class Guest:
    """The other end: QEMU's `-netdev stream`."""

    def __init__(self, medium: Medium, path: Path) -> None:
        self._medium = medium
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.socket.setblocking(False)
        self._waiting = b""
        medium.guests.append(self)
        medium.turn()

    def send(self, frame: Packet | bytes) -> None:
        data = bytes(frame)
        self.write(struct.pack(">I", len(data)) + data)

    def write(self, data: bytes) -> None:
        while data:
            try:
                data = data[self.socket.send(data) :]
            except BlockingIOError:
                self._medium.turn()
        self._medium.turn()

    def frames(self) -> list[Packet]:
        """Returns the frames that have come."""
        while True:
            self._medium.turn()
            try:
                got = self.socket.recv(1 << 20)
            except BlockingIOError:
                break
            if not got:
                raise ConnectionResetError("the medium hung up")
            self._waiting += got
        found = []
        while len(self._waiting) >= 4:
            (size,) = struct.unpack(">I", self._waiting[:4])
            if len(self._waiting) < 4 + size:
                break
            found.append(Ether(self._waiting[4 : 4 + size]))
            self._waiting = self._waiting[4 + size :]
        return found

    def await_frames(self) -> list[Packet]:
        until = time.monotonic() + DEADLINE_S
        while time.monotonic() < until:
            found = self.frames()
            if found:
                return found
            select.select([self.socket, self._medium.fd], [], [], DEADLINE_S)
        raise TimeoutError("no frame came")


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="nupa-test-") as folder:  # a socket's path is short
        yield Path(folder) / "far0"


@pytest.fixture
def four(path: Path) -> Iterator[Medium]:
    with closing(Medium(path, "10.1.0.1", "10.1.0.2")) as medium:
        yield medium


@pytest.fixture
def six(path: Path) -> Iterator[Medium]:
    with closing(Medium(path, "fd00::1", "fd00::2")) as medium:
        yield medium


def our_mac(asked: Packet) -> str:
    return str(asked.src)


def introduced(medium: Medium, path: Path) -> tuple[Guest, str]:
    """Returns a guest that answered for its address, and the medium's MAC."""
    guest = Guest(medium, path)
    (ask,) = guest.frames()
    mac = our_mac(ask)
    if ARP in ask:
        reply: Packet = ARP(
            op="is-at", hwsrc=GUEST_MAC, psrc="10.1.0.2", hwdst=mac, pdst="10.1.0.1"
        )
    else:
        reply = (
            IPv6(src="fd00::2", dst="fd00::1", hlim=255)
            / ICMPv6ND_NA(tgt="fd00::2", R=0, S=1, O=1)
            / ICMPv6NDOptDstLLAddr(lladdr=GUEST_MAC)
        )
    guest.send(Ether(src=GUEST_MAC, dst=mac) / reply)
    assert medium.reachable
    return guest, mac


def test_the_medium_asks_by_arp_again_and_again_until_it_is_answered(
    four: Medium, path: Path
) -> None:
    guest = Guest(four, path)
    for _ in range(3):
        (ask,) = guest.await_frames()
        assert (ask.dst, ask[ARP].op, ask[ARP].psrc, ask[ARP].pdst) == (
            "ff:ff:ff:ff:ff:ff", 1, "10.1.0.1", "10.1.0.2",
        )  # fmt: skip
        assert ask[ARP].hwsrc == ask.src
        assert not four.reachable


def test_the_medium_asks_by_neighbour_discovery(six: Medium, path: Path) -> None:
    (ask,) = Guest(six, path).frames()
    assert (ask.dst, ask[IPv6].dst, ask[IPv6].hlim) == ("33:33:ff:00:00:02", "ff02::1:ff00:2", 255)
    assert ask[ICMPv6ND_NS].tgt == "fd00::2"
    assert ask[ICMPv6NDOptSrcLLAddr].lladdr == ask.src
    again = Ether(bytes(ask))
    del again[ICMPv6ND_NS].cksum
    assert bytes(again) == bytes(ask)


def test_arp_requests_are_answered_for_our_address_alone(four: Medium, path: Path) -> None:
    guest = Guest(four, path)
    (ask,) = guest.frames()
    for target in ("10.1.0.1", "10.1.0.3"):
        guest.send(
            Ether(src=GUEST_MAC, dst="ff:ff:ff:ff:ff:ff")
            / ARP(op="who-has", hwsrc=GUEST_MAC, psrc="10.1.0.2", pdst=target)
        )
    (answer,) = guest.frames()
    assert (answer.dst, answer.src) == (GUEST_MAC, ask.src)
    assert (answer[ARP].op, answer[ARP].psrc, answer[ARP].hwsrc) == (2, "10.1.0.1", ask.src)
    assert (answer[ARP].pdst, answer[ARP].hwdst) == ("10.1.0.2", GUEST_MAC)
    assert four.reachable  # the request told it, too


def test_neighbour_solicitations_are_answered(six: Medium, path: Path) -> None:
    guest = Guest(six, path)
    (ask,) = guest.frames()
    solicitation = (
        Ether(src=GUEST_MAC, dst="33:33:ff:00:00:01")
        / IPv6(src="fd00::2", dst="ff02::1:ff00:1", hlim=255)
        / ICMPv6ND_NS(tgt="fd00::1")
        / ICMPv6NDOptSrcLLAddr(lladdr=GUEST_MAC)
    )
    routed = solicitation.copy()
    routed[IPv6].hlim = 254
    guest.send(routed)
    assert guest.frames() == []
    guest.send(solicitation)
    (answer,) = guest.frames()
    advert = answer[ICMPv6ND_NA]
    assert (answer.dst, answer[IPv6].src, answer[IPv6].hlim) == (GUEST_MAC, "fd00::1", 255)
    assert (advert.tgt, advert.S, advert.O, advert.R) == ("fd00::1", 1, 1, 0)
    assert answer[ICMPv6NDOptDstLLAddr].lladdr == ask.src
    again = Ether(bytes(answer))
    del again[ICMPv6ND_NA].cksum
    assert bytes(again) == bytes(answer)
    assert six.reachable


def test_a_multicast_address_is_not_learned(four: Medium, path: Path) -> None:
    guest = Guest(four, path)
    for mac in ("01:00:5e:00:00:01", "00:00:00:00:00:00"):
        guest.send(Ether(src=GUEST_MAC, dst=our_mac(guest.await_frames()[0])) / ARP(
            op="is-at", hwsrc=mac, psrc="10.1.0.2", pdst="10.1.0.1"))  # fmt: skip
    assert not four.reachable


@pytest.mark.parametrize("size", [0, 1, 56, 1472, 65507])
def test_ping_is_answered(four: Medium, path: Path, size: int) -> None:
    guest, mac = introduced(four, path)
    ping = Ether(src=GUEST_MAC, dst=mac) / IP(src="10.1.0.2", dst="10.1.0.1", id=7)
    load = bytes(index & 255 for index in range(size))
    guest.send(ping / ICMP(id=3, seq=9) / Raw(load))
    (answer,) = guest.frames()
    assert (answer.dst, answer[IP].src, answer[IP].dst) == (GUEST_MAC, "10.1.0.1", "10.1.0.2")
    assert (answer[ICMP].type, answer[ICMP].id, answer[ICMP].seq) == (0, 3, 9)
    assert bytes(answer[ICMP].payload)[:size] == load
    again = Ether(bytes(answer))
    del again[IP].chksum, again[ICMP].chksum
    assert bytes(again) == bytes(answer)


def test_ping_by_ipv6_is_answered(six: Medium, path: Path) -> None:
    guest, mac = introduced(six, path)
    guest.send(
        Ether(src=GUEST_MAC, dst=mac)
        / IPv6(src="fd00::2", dst="fd00::1")
        / ICMPv6EchoRequest(id=3, seq=9, data=b"odd")
    )
    (answer,) = guest.frames()
    assert (answer[IPv6].src, answer[ICMPv6EchoReply].id) == ("fd00::1", 3)
    assert answer[ICMPv6EchoReply].data == b"odd"
    again = Ether(bytes(answer))
    del again[ICMPv6EchoReply].cksum
    assert bytes(again) == bytes(answer)


ROCE = bytes(range(16))


def test_packets_that_are_sent_wait_for_the_link_address(four: Medium, path: Path) -> None:
    assert four.send(ROCE) == -errno.ENOTCONN
    guest = Guest(four, path)
    (ask,) = guest.frames()
    for number in range(3):
        assert four.send(ROCE + bytes([number] * number), 100 + number) == 0
    assert guest.frames() == []
    guest.send(Ether(src=GUEST_MAC, dst=ask.src) / ARP(
        op="is-at", hwsrc=GUEST_MAC, psrc="10.1.0.2", hwdst=ask.src, pdst="10.1.0.1"))  # fmt: skip
    sent = guest.frames()
    assert four.counters["sent"] == 3
    for number, frame in enumerate(sent):
        ip, udp = frame[IP], frame[UDP]
        assert (frame.dst, ip.src, ip.dst, ip.id) == (
            GUEST_MAC,
            "10.1.0.1",
            "10.1.0.2",
            100 + number,
        )
        assert (str(ip.flags), ip.tos, ip.ttl) == ("DF", 2, 64)
        assert (udp.sport, udp.dport, udp.len) == (4791, 4791, 24 + number)
        assert bytes(frame)[-16 - number :] == ROCE + bytes([number] * number)
        again = Ether(bytes(frame))
        del again[IP].chksum
        assert bytes(again) == bytes(frame)
    assert len(sent) == 3


def test_udp_over_ipv6_has_a_checksum(six: Medium, path: Path) -> None:
    guest, _ = introduced(six, path)
    six.send(ROCE + b"\1")
    (frame,) = guest.frames()
    assert (frame[IPv6].src, frame[IPv6].tc, frame[IPv6].hlim) == ("fd00::1", 2, 64)
    again = Ether(bytes(frame))
    assert again[UDP].chksum
    del again[UDP].chksum
    assert bytes(again) == bytes(frame)


@pytest.mark.parametrize("checksum", [None, 0])
def test_packets_of_the_guest_arrive_with_their_headers(
    four: Medium, path: Path, checksum: int | None
) -> None:
    guest, mac = introduced(four, path)
    guest.send(
        Ether(src=GUEST_MAC, dst=mac)
        / IP(src="10.1.0.2", dst="10.1.0.1", id=0xBEEF, tos=3, ttl=63, flags="DF")
        / UDP(sport=0xC001, dport=4791, chksum=checksum)
        / Raw(ROCE)
    )
    assert four.received == [
        (gid("10.1.0.2") + gid("10.1.0.1"), 0xBEEF, 0xC001, 3, 63, ROCE)
    ]  # fmt: skip


@pytest.mark.parametrize("checksum", [None, 0])
def test_packets_by_ipv6_arrive(six: Medium, path: Path, checksum: int | None) -> None:
    guest, mac = introduced(six, path)
    guest.send(
        Ether(src=GUEST_MAC, dst=mac)
        / IPv6(src="fd00::2", dst="fd00::1", tc=3, hlim=63)
        / UDP(sport=0xC001, dport=4791, chksum=checksum)
        / Raw(ROCE)
    )
    assert six.received == [(gid("fd00::2") + gid("fd00::1"), 0, 0xC001, 3, 63, ROCE)]


def bad_frames(mac: str) -> dict[str, tuple[Packet | bytes, str]]:
    ether = Ether(src=GUEST_MAC, dst=mac)
    ip = IP(src="10.1.0.2", dst="10.1.0.1")
    udp = UDP(sport=1, dport=4791)
    good = ether / ip / udp / Raw(ROCE)
    return {
        "another sender": (ether / IP(src="10.1.0.3", dst="10.1.0.1") / udp / Raw(ROCE), "foreign"),
        "a wrong IP checksum": (
            ether / IP(src="10.1.0.2", dst="10.1.0.1", chksum=1) / udp / Raw(ROCE),
            "malformed",
        ),
        "a wrong UDP checksum": (ether / ip / UDP(dport=4791, chksum=1) / Raw(ROCE), "malformed"),
        "a short UDP length": (ether / ip / UDP(dport=4791, len=23) / Raw(ROCE), "malformed"),
        "no ICRC": (ether / ip / udp / Raw(ROCE[:15]), "malformed"),
        "a fragment": (
            ether / IP(src="10.1.0.2", dst="10.1.0.1", flags="MF") / udp / Raw(ROCE),
            "malformed",
        ),
        "a cut frame": (bytes(good)[:-1], "malformed"),
        "a runt": (bytes(good)[:13], "malformed"),
        "another port": (ether / ip / UDP(dport=4790) / Raw(ROCE), ""),
        "another destination": (
            ether / IP(src="10.1.0.2", dst="10.1.0.9") / udp / Raw(ROCE),
            "",
        ),
        "another MAC": (Ether(src=GUEST_MAC, dst="02:4e:55:9:9:9") / ip / udp / Raw(ROCE), ""),
        "a VLAN tag": (ether / Dot1Q(vlan=3) / ip / udp / Raw(ROCE), ""),
    }


@pytest.mark.parametrize("name", bad_frames(GUEST_MAC))
def test_what_is_not_a_packet_of_the_wire_is_counted_or_ignored(
    four: Medium, path: Path, name: str
) -> None:
    guest, mac = introduced(four, path)
    frame, counter = bad_frames(mac)[name]
    guest.send(frame)
    assert four.received == []
    assert [key for key in ("malformed", "foreign") if four.counters[key]] == [counter] * bool(
        counter
    )
    guest.send(Ether(src=GUEST_MAC, dst=mac) / IP(src="10.1.0.2", dst="10.1.0.1") / UDP(
        sport=1, dport=4791) / Raw(ROCE))  # fmt: skip
    assert len(four.received) == 1  # the stream goes on


@pytest.mark.parametrize("length", [0, FRAME_BYTES_MAX + 1, 0xFFFFFFFF])
def test_a_length_that_no_frame_has_ends_the_connection(
    four: Medium, path: Path, length: int
) -> None:
    guest, _ = introduced(four, path)
    guest.write(struct.pack(">I", length))
    with pytest.raises(ConnectionResetError):
        guest.frames()
    assert not four.reachable
    introduced(four, path)  # the next one may come


def test_the_longest_frame_is_taken(four: Medium, path: Path) -> None:
    guest, mac = introduced(four, path)
    guest.send((bytes(Ether(src=GUEST_MAC, dst=mac)) + bytes(FRAME_BYTES_MAX))[:FRAME_BYTES_MAX])
    guest.send(Ether(src=GUEST_MAC, dst=mac) / IP(src="10.1.0.2", dst="10.1.0.1") / UDP(
        sport=1, dport=4791) / Raw(ROCE))  # fmt: skip
    assert len(four.received) == 1


def test_frames_may_come_byte_by_byte(four: Medium, path: Path) -> None:
    guest, mac = introduced(four, path)
    frame = bytes(
        Ether(src=GUEST_MAC, dst=mac) / IP(src="10.1.0.2", dst="10.1.0.1")
        / UDP(sport=1, dport=4791) / Raw(ROCE)
    )  # fmt: skip
    for byte in struct.pack(">I", len(frame)) + frame:
        guest.write(bytes([byte]))
    assert len(four.received) == 1


def test_a_guest_that_does_not_read_costs_packets_and_no_more(four: Medium, path: Path) -> None:
    guest, _ = introduced(four, path)
    load = bytes(60000)
    sent = 0
    while (status := four.send(load)) == 0:
        sent += 1
        assert sent < 3 * OUT_BYTES // len(load)
    assert status == -errno.ENOBUFS
    assert four.counters["dropped"] == 1
    assert sent >= OUT_BYTES // (len(load) + 46)
    assert len(guest.frames()) == sent
    assert four.send(load) == 0
    assert len(guest.frames()) == 1


def test_a_packet_is_as_long_as_udp_permits(four: Medium, path: Path) -> None:
    guest, _ = introduced(four, path)
    assert four.send(bytes(65508)) == -errno.EMSGSIZE
    assert four.send(bytes(65507)) == 0
    (frame,) = guest.frames()
    assert frame[IP].len == 65535


def test_a_guest_that_starts_again_is_asked_again(four: Medium, path: Path) -> None:
    guest, _ = introduced(four, path)
    guest.socket.close()
    four.turn()
    assert not four.reachable
    assert four.send(ROCE) == -errno.ENOTCONN
    guest, _ = introduced(four, path)
    four.send(ROCE)
    assert len(guest.frames()) == 1


def test_a_second_guest_waits_for_the_end_of_the_first(four: Medium, path: Path) -> None:
    first, _ = introduced(four, path)
    second = Guest(four, path)
    assert second.frames() == []
    first.socket.close()
    (ask,) = second.await_frames()
    assert ask[ARP].pdst == "10.1.0.2"


def test_the_socket_is_ours_alone_and_goes_with_the_medium(path: Path) -> None:
    with closing(Medium(path, "10.1.0.1", "10.1.0.2")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(OSError, match="EADDRINUSE"):
            Medium(path, "10.1.0.1", "10.1.0.2")
        assert path.is_socket()
    assert not path.exists()


def test_a_socket_that_was_left_is_replaced_and_a_file_is_not(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with closing(Medium(path, "10.1.0.1", "10.1.0.2")):
        pass
    path.write_text("mine")
    with pytest.raises(OSError, match="EADDRINUSE"):
        Medium(path, "10.1.0.1", "10.1.0.2")
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("local", "remote"),
    [("10.1.0.1", "10.1.0.1"), ("10.1.0.1", "fd00::2"), ("fd00::1", "10.1.0.2")],
)
def test_addresses_are_two_of_one_family(path: Path, local: str, remote: str) -> None:
    with pytest.raises(OSError, match="EINVAL"):
        Medium(path, local, remote)


def test_a_path_is_as_long_as_a_socket_permits(path: Path) -> None:
    longest = path.parent / ("x" * (107 - len(str(path.parent)) - 1))
    with closing(Medium(longest, "10.1.0.1", "10.1.0.2")):
        assert longest.is_socket()
    with pytest.raises(OSError, match="ENAMETOOLONG"):
        Medium(longest.with_name(longest.name + "x"), "10.1.0.1", "10.1.0.2")
