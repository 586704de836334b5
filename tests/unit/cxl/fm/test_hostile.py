# SPDX-License-Identifier: BSD-3-Clause
"""The fabric manager's socket against other users, too many managers, stalls and random bytes."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from nupa.base.errors import LocalError, RemoteError
from nupa.cxl.fm.client import transport
from nupa.cxl.fm.client.fabric_manager import FabricManager
from nupa.cxl.fm.mctp import MESSAGE_BYTES, PACKET_BYTES, MctpMessage, MessageType, encode
from nupa.cxl.fm.messages import Cci, FmOpcode
from nupa.cxl.fm.server.manager import Manager
from nupa.cxl.fm.server.server import MOST_MANAGERS, Server, path_of
from nupa.cxl.function.cci import Code
from tests.unit.cxl.rack import Rack

ASK = MctpMessage(MessageType.FM_API, Cci(FmOpcode.IDENTIFY_SWITCH).pack())
STALL_S = 0.05


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NUPA_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def manager() -> Manager:
    return Manager(Rack().switch)


@pytest.fixture
def server(folder: Path, manager: Manager) -> Iterator[Server]:
    with Server(manager, path_of("a")).start() as server:
        yield server
    assert list(folder.iterdir()) == []


def raw(server: Server) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(30)
    sock.connect(str(server.path))
    return sock


def hung_up(sock: socket.socket) -> bool:
    """Tell whether the server has disconnected, after reading what it has sent."""
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionResetError:
        return True
    return True


def as_nobody(work: Callable[[], str]) -> str:
    """Returns the result of *work* as user 65534, in a process of its own."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        answer = "it has failed"
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            answer = work()
        finally:
            os.write(theirs, answer.encode())
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as answer_file:
        answer = answer_file.read()
    os.waitpid(child, 0)
    return answer


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: another user is to call")
@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_another_user_is_told_that_the_fabric_is_not_its(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    def call() -> str:
        try:
            with FabricManager.open("a") as fm:
                return str(fm.switch())
        except (LocalError, RemoteError) as error:
            return str(error)

    with tempfile.TemporaryDirectory() as folder:  # other users cannot enter pytest's
        Path(folder).chmod(0o755)
        monkeypatch.setenv("NUPA_DIR", folder)
        with Server(manager, path_of("a")).start() as server:
            assert server.path.stat().st_mode & 0o777 == 0o600
            # By its own name of the fabric that user would not even find it.
            monkeypatch.setattr(transport, "path_of", lambda _name: server.path)
            server.path.chmod(mode)
            assert f"{server.path} belongs to user 0, and you are user 65534" in as_nobody(call)
            with FabricManager.open("a") as fm:
                assert fm.switch().ports == 6


def test_one_manager_more_than_there_may_be_is_hung_up_on(server: Server) -> None:
    held = [raw(server) for _ in range(MOST_MANAGERS)]
    try:
        for sock in held:
            sock.sendall(encode(ASK))
            assert sock.recv(1)
        with raw(server) as one_more:
            assert hung_up(one_more)
        held.pop().close()
        with FabricManager.open("a") as fm:  # there is room again, once the server has noticed
            assert fm.switch().ports == 6
    finally:
        for sock in held:
            sock.close()


def test_a_stalled_manager_is_disconnected_and_others_do_not_wait(
    folder: Path, manager: Manager
) -> None:
    with Server(manager, path_of("a"), stall_s=STALL_S).start() as server:
        slow = [raw(server) for _ in range(MOST_MANAGERS - 1)]
        try:
            for number, sock in enumerate(slow):
                sock.sendall(encode(ASK)[: 1 + number % 18])
            with FabricManager.open("a") as fm:
                assert fm.switch().ports == 6
                assert all(hung_up(sock) for sock in slow)
                assert fm.switch().ports == 6
        finally:
            for sock in slow:
                sock.close()
    assert list(folder.iterdir()) == []


def test_a_manager_that_reads_no_answers_is_not_heard_and_others_do_not_wait(
    server: Server,
) -> None:
    everything = Cci(FmOpcode.PORT_STATE, bytes([255, *range(255)]))
    many = encode(MctpMessage(MessageType.FM_API, everything.pack())) * 64
    with raw(server) as deaf, FabricManager.open("a") as fm:
        deaf.setblocking(False)
        with suppress(BlockingIOError):
            for _ in range(4096):
                deaf.send(many)
                fm.switch()
            pytest.fail("it is heard without an end")
        assert fm.switch().ports == 6
        deaf.setblocking(True)
        assert deaf.recv(1)


def test_a_message_of_the_longest_length_is_taken_and_one_byte_more_is_not(server: Server) -> None:
    for more, is_heard in ((0, True), (1, False)):
        body = bytes([MessageType.FM_API]) + b"\0" * (MESSAGE_BYTES - 1 + more)
        parts = [body[at : at + PACKET_BYTES] for at in range(0, len(body), PACKET_BYTES)]
        with raw(server) as sock:
            for number, part in enumerate(parts):
                flags = (number == 0) << 7 | (part is parts[-1]) << 6 | (number & 3) << 4 | 8
                head = (len(part) + 4).to_bytes(2, "little") + bytes([1, 9, 8, flags])
                try:
                    sock.sendall(head + part)
                except OSError:
                    assert not is_heard
            # Whole or not, it is not a CCI message: its length field says 0.
            assert hung_up(sock)
    with FabricManager.open("a") as fm:
        wrong = b"\1" * 65536
        with pytest.raises(RemoteError, match="invalid payload length"):
            fm.request(FmOpcode.IDENTIFY_SWITCH, wrong)
        with pytest.raises(ValueError, match="65537 bytes"):
            fm.request(FmOpcode.IDENTIFY_SWITCH, wrong + b"\1")


def _mutated(random: Random) -> bytes:
    """Make random bytes, or requests with bytes changed, cut or doubled, or responses."""
    requests = b"".join(
        encode(
            MctpMessage(
                random.choice(list(MessageType)),
                Cci(
                    random.choice([*FmOpcode, random.randrange(1 << 16), 0x0106]),
                    random.randbytes(random.randrange(40)),
                    random.randrange(256),
                    response=random.random() < 0.1,
                ).pack(),
                random.randrange(8),
                random.random() < 0.9,
                random.choice((8, 8, 8, 16, 17, 254)),
            ),
            random.choice((PACKET_BYTES, 7, 1)),
        )
        for _ in range(random.randrange(1, 6))
    )
    match random.randrange(4):
        case 0:
            return random.randbytes(random.randrange(1, 200))
        case 1:
            return requests
        case 2:
            return requests[: random.randrange(len(requests))] + requests
    changed = bytearray(requests)
    for _ in range(random.randrange(1, 4)):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def test_no_bytes_end_the_server_or_the_session_of_another(server: Server) -> None:
    random = Random(11)
    with FabricManager.open("a") as fm:
        for turn in range(600):
            with raw(server) as sock:
                for _ in range(random.randrange(1, 4)):
                    data = _mutated(random)
                    try:
                        for at in range(0, len(data), 64):
                            sock.sendall(data[at : at + 64])
                    except OSError:  # it has hung up
                        break
                sock.shutdown(socket.SHUT_WR)
                assert hung_up(sock)
            if turn % 10 == 0:
                assert fm.switch().ports == 6
        codes = {fm.background().code}
    assert codes <= set(Code)
