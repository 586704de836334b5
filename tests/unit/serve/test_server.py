# SPDX-License-Identifier: BSD-3-Clause
"""The server: sockets, TLS, and the user of a peer."""

from __future__ import annotations

import http.client
import os
import random
import socket
import ssl
from ipaddress import ip_address
from pathlib import Path

import pytest

from nupa.base.errors import LocalError
from nupa.serve.access.certificate import make_certificate
from nupa.serve.access.peer import find_user, is_own_peer
from nupa.serve.server import HttpServer, Place, Tls
from nupa.serve.service import Options, Service
from tests.unit.serve.clients import served

_PATH = "/redfish/v1/Fabrics"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)


def status(connection: http.client.HTTPConnection, path: str = _PATH) -> int:
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_process_of_the_same_user_needs_no_account_on_loopback(service: Service) -> None:
    with served(service) as server:
        assert status(http.client.HTTPConnection(*server.address)) == 200
        service.options = Options(login=True)
        assert status(http.client.HTTPConnection(*server.address)) == 401


def test_a_unix_socket_is_for_its_user_and_goes_with_the_server(
    service: Service, tmp_path: Path
) -> None:
    path = str(tmp_path / "socket")
    with served(service, Place(path=path)):
        assert Path(path).stat().st_mode & 0o777 == 0o600
        assert status(UnixConnection(path)) == 200
        with pytest.raises(LocalError, match="cannot listen"):
            HttpServer(lambda *_: None, Place(path=path))
    assert not Path(path).exists()


def test_a_socket_that_a_dead_server_left_is_replaced(service: Service, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)
    with served(service, Place(path=path)):
        assert status(UnixConnection(path)) == 200


def test_tls_uses_a_certificate_of_its_own(service: Service, tmp_path: Path) -> None:
    with served(service, tls=Tls()) as server:
        pem = ssl.get_server_certificate(server.address)
        trusted = tmp_path / "cert.pem"
        trusted.write_text(pem)
        context = ssl.create_default_context(cafile=str(trusted))
        connection = http.client.HTTPSConnection(*server.address, context=context, timeout=30)
        assert status(connection) == 200
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.load_verify_locations(str(trusted))
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert status(http.client.HTTPSConnection(*server.address, context=old)) == 200


def test_a_key_that_is_not_the_certificates_is_refused(tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        made.append(make_certificate(["localhost"], tmp_path / name))
    assert made[0].key.stat().st_mode & 0o777 == 0o600
    with pytest.raises(LocalError, match="cannot be used"):
        HttpServer(
            lambda *_: None,
            Place("127.0.0.1", 0),
            Tls(str(made[0].cert), str(made[1].key)),
        )


def test_the_user_of_a_peer_is_the_one_of_its_established_socket() -> None:
    here = (ip_address("::ffff:127.0.0.1"), 8000)
    there = (ip_address("::ffff:127.0.0.1"), 0xA000)
    row = "0: 0100007F:A000 0100007F:1F40 {} 0:0 00:0 0 {} 0 {} 1 0 20 4 30 10 -1"
    assert find_user([row.format("01", 77, 5)], there, here) == 77
    # In FIN_WAIT, and without an inode, the user is lost and shows as 0.
    assert find_user([row.format("04", 0, 0)], there, here) is None
    assert find_user([row.format("01", 0, 0)], there, here) is None
    assert find_user([row.format("01", 77, 5)], here, there) is None


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_both_families_know_their_peers(family: int) -> None:
    address = "127.0.0.1" if family == socket.AF_INET else "::1"
    with (
        socket.create_server((address, 0), family=family) as listening,
        socket.create_connection(listening.getsockname()[:2]),
    ):
        accepted, _ = listening.accept()
        with accepted:
            assert is_own_peer(accepted)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_process_of_another_user_is_a_stranger() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as connection,
    ):
        os.fchown(connection.fileno(), 65534, -1)  # as if that user had made it
        accepted, _ = listening.accept()
        with accepted:
            assert not is_own_peer(accepted)


@pytest.mark.parametrize("seed", range(3))
def test_bytes_that_are_no_http_end_a_connection_and_not_the_server(
    service: Service, seed: int
) -> None:
    random_ = random.Random(seed)
    with served(service) as server:
        for _ in range(20):
            data = random_.choice(
                [b"", b"GET / HTTP/1.1\r\n", b"POST /redfish HTTP/1.1\r\nHost: x\r\n"]
            )
            data += random_.randbytes(random_.randrange(300))
            with socket.create_connection(server.address, timeout=30) as connection:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass
        assert status(http.client.HTTPConnection(*server.address)) == 200


def test_headers_beyond_the_limit_are_refused(service: Service) -> None:
    with served(service) as server, socket.create_connection(server.address, timeout=30) as asking:
        asking.sendall(b"GET /redfish HTTP/1.1\r\nHost: localhost\r\n")
        asking.sendall(b"X-Long: " + b"x" * (17 << 10))
        assert asking.recv(4096).startswith(b"HTTP/1.1 400")
