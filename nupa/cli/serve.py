# SPDX-License-Identifier: BSD-3-Clause
"""`nupa serve`: a fabric over HTTP."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import TYPE_CHECKING

from nupa.cli.common.argument import add_fabric
from nupa.cli.common.command import Subparsers, add_command, fail

if TYPE_CHECKING:
    from nupa.serve.server import HttpServer, Place, Tls
    from nupa.serve.service import Service

_EPILOG = """\
/redfish/v1 is a Redfish 2025.4 service, /metrics is for Prometheus, / is a page for browsers.

Processes of this user need no account at loopback addresses and Unix sockets; --login asks them,
too.  Other users, and other machines, log in as USER.  Its password is the first line of
--password-file, else a random one, printed where own processes log in, too.  A server that other
machines reach speaks TLS only, with a certificate of its own if none is given.

Requests change the fabric only with --allow-changes.

examples:
  nupa serve                                     at http://127.0.0.1:8000, to look at
  nupa serve rack --allow-changes                the fabric `rack`; Redfish requests change it
  nupa serve --unix /run/user/1000/nupa.sock     curl --unix-socket PATH http://localhost/redfish/v1
  nupa serve --sysfs /tmp/lab                    and files for node_exporter --path.sysfs=/tmp/lab
  nupa serve --listen 0.0.0.0:8443 --password-file secret --tls-cert c.pem --tls-key k.pem
"""
_DEFAULT = "127.0.0.1:8000"


def add_parser(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers, "serve", "serve a fabric over HTTP: Redfish, metrics, a page", _EPILOG, run
    )
    add_fabric(parser, positional=True)
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--listen",
        metavar="ADDR:PORT",
        type=_place,
        default=_place(_DEFAULT),
        help=f"listen at this address; port 0: any free one ({_DEFAULT})",
    )
    place.add_argument("--unix", metavar="PATH", help="listen at a Unix socket")
    parser.add_argument("--tls", action="store_true", help="use TLS at a loopback address, too")
    parser.add_argument("--tls-cert", metavar="FILE", help="use this certificate, in PEM")
    parser.add_argument("--tls-key", metavar="FILE", help="the certificate's private key, in PEM")
    parser.add_argument(
        "--user", metavar="NAME", default="admin", help="name the first account so (admin)"
    )
    parser.add_argument(
        "--password-file", metavar="FILE", help="read its password from FILE (default: random)"
    )
    parser.add_argument("--login", action="store_true", help="ask own processes to log in, too")
    parser.add_argument(
        "--allow-changes", action="store_true", help="let requests change the fabric"
    )
    parser.add_argument(
        "--sunfish", metavar="URL", type=_url, help="register at this Sunfish server"
    )
    parser.add_argument(
        "--sysfs",
        metavar="DIR",
        help="keep DIR/class/infiniband for node_exporter --path.sysfs=DIR, a device for each host",
    )


def _place(text: str) -> tuple[str, int]:
    from ipaddress import ip_address

    address, colon, port = text.rpartition(":")
    address = address.removeprefix("[").removesuffix("]")
    try:
        if not colon or not port.isdecimal() or int(port) > 0xFFFF:
            raise ValueError
        return str(ip_address("127.0.0.1" if address == "localhost" else address)), int(port)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an address and port like 127.0.0.1:8000 or [::1]:8000"
        ) from None


def _url(text: str) -> str:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or not text.isascii() or not text.isprintable() or " " in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not a URL like http://127.0.0.1:5000")
    return text


def run(args: argparse.Namespace) -> int:
    from contextlib import ExitStack
    from pathlib import Path

    from nupa.fabric import Fabric

    if (args.tls_cert is None) != (args.tls_key is None):
        args.parser.error("--tls-cert and --tls-key belong together: give both")
    try:
        import cryptography  # noqa: F401
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        return fail(f"serve needs {error.name}, which is not installed: `pip install nupa[serve]`")
    from nupa.serve.server import HttpServer
    from nupa.serve.service import Options, Service
    from nupa.serve.sysfs import kept

    place, tls = _where(args)
    # It is not kept up: the server goes on while the fabric is taken down and made again.
    with Fabric.open(args.fabric) as fabric:
        name = fabric.name
    with ExitStack() as stack:
        options = Options(args.allow_changes, args.login, args.sunfish or "")
        service = stack.enter_context(Service(name, options))
        if args.sysfs is not None:
            stack.enter_context(kept(Path(args.sysfs), service.snapshots))
        made = _add_account(service, args)
        from nupa.serve.app import make_app

        server = HttpServer(make_app(service), place, tls)
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        before = [signal.signal(number, lambda *_: server.stop()) for number in numbers]
        try:
            server.run(lambda: _start(args, service, server, made), service.close)
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)
    return 0


def _where(args: argparse.Namespace) -> tuple[Place, Tls | None]:
    from nupa.serve.server import Place, Tls

    place = Place(path=args.unix) if args.unix is not None else Place(*args.listen)
    wanted = args.tls or args.tls_cert is not None or not place.is_local
    return place, Tls(args.tls_cert, args.tls_key) if wanted else None


def _add_account(service: Service, args: argparse.Namespace) -> str:
    """Adds the first account; returns its password if it was made here."""
    from nupa.base.errors import LocalError
    from nupa.serve.access.accounts import AccountError

    made = ""
    if args.password_file is None:
        import secrets

        password = made = secrets.token_urlsafe(15)
    else:
        password = _password(args.password_file)
    try:
        service.accounts.add(args.user, password, "Administrator")
    except AccountError as error:
        raise LocalError(f"the account {args.user!r}, {error.what}: {error}") from error
    return made


def _password(path: str) -> str:
    from nupa.base.errors import LocalError

    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise LocalError(f"{path} is open to other users: `chmod go= {path}`")
            return file.readline(1024).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise LocalError(f"the password file {path} cannot be read: {error}") from error


def _start(args: argparse.Namespace, service: Service, server: HttpServer, password: str) -> None:
    _greet(args, service.name, server, password)
    service.started(server.url)


def _greet(args: argparse.Namespace, fabric: str, server: HttpServer, password: str) -> None:
    changes = "may change it" if args.allow_changes else "only read it"
    print(f"{fabric} at {server.url}; requests {changes}")
    if server.fingerprint:
        print(f"self-signed certificate, SHA-256 {server.fingerprint}")
    if password and (args.login or not server.place.is_local):
        print(f"user {args.user}, password {password}")
    sys.stdout.flush()
