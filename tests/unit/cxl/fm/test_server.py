# SPDX-License-Identifier: BSD-3-Clause
"""The fabric manager's socket: several managers at once, only its owner, nothing left behind."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

import nupa.fabric
from nupa.base.errors import LocalError, RemoteError
from nupa.cxl.fm.client.fabric_manager import FabricManager
from nupa.cxl.fm.mctp import MctpMessage, MessageType, encode
from nupa.cxl.fm.messages import Cci, FmOpcode
from nupa.cxl.fm.server.manager import Manager
from nupa.cxl.fm.server.server import Server, path_of
from nupa.cxl.function.cci import Code, CommandError
from tests.unit.cxl.rack import Rack

REFUSALS = {Code.BUSY, Code.INVALID_INPUT}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NUPA_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def rack() -> Rack:
    return Rack()


@pytest.fixture
def server(folder: Path, rack: Rack) -> Iterator[Server]:
    assert folder.is_dir()
    with Server(Manager(rack.switch), path_of("a")).start() as server:
        yield server
    assert list(folder.iterdir()) == []


def raw(server: Server) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(30)
    sock.connect(str(server.path))
    return sock


def test_two_managers_see_what_either_has_bound(server: Server, rack: Rack) -> None:
    assert server.path.stat().st_mode & 0o777 == 0o600
    with FabricManager.open("a") as one, FabricManager.open("a") as other:
        one.bind(0, 1, 2)
        assert other.virtual_switches([0])[0].vppbs[1].port == 2
        with pytest.raises(CommandError) as refused:
            other.bind(1, 0, 2)
        assert refused.value.code is Code.INVALID_INPUT
        other.unbind(0, 1)
    assert rack.bound() == []


def test_managers_that_bind_at_once_are_served_or_told_why_not(server: Server, rack: Rack) -> None:
    del server
    codes: list[Code] = []

    def work(vcs: int) -> None:
        with FabricManager.open("a") as fm:
            for turn in range(20):
                for call, rest in ((fm.bind, (2 + turn % 2,)), (fm.unbind, ())):
                    try:
                        call(vcs, turn % 3, *rest)
                    except CommandError as refused:
                        codes.append(refused.code)

    threads = [Thread(target=work, args=(vcs,)) for vcs in (0, 1, 0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert set(codes) <= REFUSALS
    ends = [(port, ld) for _, _, port, ld in rack.bound()]
    assert len(ends) == len(set(ends))


def test_another_user_is_not_heard(folder: Path, rack: Rack) -> None:
    path = folder / "other"
    other = os.geteuid() + 1
    with Server(Manager(rack.switch), path, owner=other).start() as server, raw(server) as sock:
        assert sock.recv(1) == b""
    with (
        Server(Manager(rack.switch), path_of("a"), owner=other).start(),
        FabricManager.open("a") as fm,
        pytest.raises(RemoteError, match="fabric manager"),
    ):
        fm.switch()


def test_invalid_bytes_end_their_connection_and_no_other(server: Server) -> None:
    with FabricManager.open("a") as fm:
        response = encode(MctpMessage(MessageType.FM_API, Cci(1, response=True).pack()))
        short = encode(MctpMessage(MessageType.FM_API, b"short"))
        for wrong in (b"\xff" * 64, response, short, b"\0\0"):
            with raw(server) as sock:
                sock.sendall(wrong)
                assert sock.recv(1) == b""
        with raw(server) as half:
            half.sendall(encode(MctpMessage(MessageType.FM_API, Cci(1).pack()))[:5])
            assert fm.switch().ports == 6
        assert fm.switch().ports == 6


def test_many_requests_at_once_are_answered_in_their_order(server: Server) -> None:
    asked = [Cci(FmOpcode.IDENTIFY_SWITCH, tag=i % 256) for i in range(600)]
    stream = b"".join(encode(MctpMessage(MessageType.FM_API, each.pack(), 1)) for each in asked)
    one = len(
        encode(MctpMessage(MessageType.FM_API, asked[0].answer(Code.SUCCESS, bytes(73)).pack()))
    )
    with raw(server) as sock:
        sock.sendall(stream)
        got = b""
        while len(got) < one * len(asked):
            piece = sock.recv(1 << 16)
            assert piece
            got += piece
    assert [got[i * one + 8] for i in range(len(asked))] == [each.tag for each in asked]


def test_one_fabric_has_one_server_and_a_dead_one_s_socket_is_taken(
    folder: Path, rack: Rack
) -> None:
    path = path_of("a")
    stale = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stale.bind(str(path))
    stale.close()
    with Server(Manager(rack.switch), path).start():
        with pytest.raises(LocalError, match="no fabric manager can listen"):
            Server(Manager(rack.switch), path)
        with FabricManager.open("a") as fm:
            assert fm.switch().ports == 6
    with pytest.raises(LocalError, match="nupa fm serve"):
        FabricManager.open("a")
    assert list(folder.iterdir()) == []


def test_the_manager_is_also_found_at_the_fabric() -> None:
    assert getattr(nupa.fabric, "FabricManager") is FabricManager  # noqa: B009


def test_a_place_that_is_no_folder_is_an_error(folder: Path, rack: Rack) -> None:
    with pytest.raises(LocalError, match="no fabric manager can listen"):
        Server(Manager(rack.switch), folder / "missing" / "a")
