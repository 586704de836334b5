# SPDX-License-Identifier: BSD-3-Clause
"""A folder for fabrics, a fabric of two hosts in it, and peers; nothing of them stays."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nupa.fabric import Fabric
from nupa.topology.topology import star
from nupa.verbs import Address
from tests.cross.peers.kernels import Kernels
from tests.cross.peers.node import WAIT_S, Region
from tests.cross.peers.peer import Nursery, Peer

SIZE = 1 << 20


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def nupa_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of shared memory that NUPA_DIR names."""
    folder = Path(tempfile.mkdtemp(prefix="nupa-test-", dir="/dev/shm"))
    monkeypatch.setenv("NUPA_DIR", str(folder))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def fabric(nupa_dir: Path) -> Iterator[Fabric]:  # noqa: ARG001
    """A named fabric, `cross`, of two hosts."""
    with Fabric.create("cross", star(2)) as fabric:
        yield fabric


def peers_of(make: Callable[[], Peer], nupa_dir: Path) -> Iterator[Callable[[], Peer]]:
    """Makes peers, which end with the fixture that this is the body of."""
    peers: list[Peer] = []

    def one_more() -> Peer:
        peers.append(make())
        peers[-1].set_env(NUPA_DIR=str(nupa_dir))
        return peers[-1]

    yield one_more
    for peer in peers:
        peer.close()


@pytest.fixture
def spawn(nursery: Nursery, nupa_dir: Path) -> Iterator[Callable[[], Peer]]:
    """Makes peers."""
    yield from peers_of(nursery.peer, nupa_dir)


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernels]:
    kernels = Kernels(tmp_path_factory.mktemp("kernels"))
    yield kernels
    kernels.close()


@pytest.fixture
def own_shm() -> Iterator[Callable[[int], Callable[[], Peer]]]:
    """Makes a maker of peers with a private /dev/shm of so many bytes.  This is a tmpfs in a mount
    namespace (as root; else in a user namespace, too)."""
    nurseries: list[Nursery] = []
    peers: list[Peer] = []

    def make(size_bytes: int) -> Callable[[], Peer]:
        unshare = ["unshare", "--mount"] + (["--map-root-user"] if os.geteuid() else [])
        try:
            subprocess.run(
                [*unshare, "mount", "-t", "tmpfs", "none", "/dev/shm"],
                check=True,
                capture_output=True,
                timeout=WAIT_S,
            )
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no mount namespace of our own here: {error}")
        mount = f'mount -t tmpfs -o size={size_bytes} none /dev/shm && exec "$@"'
        nursery = Nursery(prefix=[*unshare, "sh", "-c", mount, "sh"])
        nurseries.append(nursery)

        def spawn() -> Peer:
            peers.append(nursery.peer())
            return peers[-1]

        return spawn

    yield make
    for peer in peers:
        peer.close()
    for nursery in nurseries:
        nursery.close()


@dataclass
class Pair:
    """Two peers on two hosts, with a QP and a region of SIZE bytes each."""

    a: Peer
    b: Peer
    a_region: Region
    b_region: Region
    a_address: Address
    b_address: Address

    def connect(self, **options: int) -> None:
        self.a.connect(self.b_address, **options)
        self.b.connect(self.a_address, **options)


@pytest.fixture
def make_pair(fabric: Fabric, spawn: Callable[[], Peer]) -> Callable[..., Pair]:
    """Makes two peers; connected, but for *connected*=False or UD; *path*: options of connect."""

    def make(
        qp_type: str = "rc",
        *,
        mover: str | None = None,
        size: int = SIZE,
        connected: bool = True,
        path: dict[str, int] | None = None,
        **qp_options: Any,
    ) -> Pair:
        a, b = spawn(), spawn()
        regions, addresses = [], []
        for host, peer in enumerate((a, b)):
            peer.attach(fabric.name, host, mover)
            regions.append(peer.register(size, pool=mover == "pool"))
            addresses.append(peer.make_qp(qp_type, **qp_options))
        pair = Pair(a, b, regions[0], regions[1], addresses[0], addresses[1])
        if qp_type == "ud":
            a.make_ah(pair.b_address)
            b.make_ah(pair.a_address)
        elif connected:
            pair.connect(**(path or {}))
        return pair

    return make


@pytest.fixture(params=["cma", "relay", "pool", None], ids=lambda mover: mover or "chosen")
def mover(request: pytest.FixtureRequest) -> str | None:
    """How bulk moves, forced; None: as the engine chooses."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def pair(make_pair: Callable[..., Pair]) -> Pair:
    """RC, by the best mover."""
    return make_pair()


Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def cli(environment: dict[str, str]) -> Cli:
    """Runs `nupa ARGS`."""

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "nupa.cli", *args]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=30, check=False
        )

    return run


@pytest.fixture
def environment(nupa_dir: Path) -> dict[str, str]:
    """For programs that a test starts."""
    return {**os.environ, "NUPA_DIR": str(nupa_dir)}


def exchange(survivor: Peer, newcomer: Peer, op: str) -> None:
    """Queue pairs between them, and traffic: messages, and *op*, "read" or "write"."""
    region = newcomer.register(SIZE)
    address = newcomer.make_qp()
    mine = survivor.make_qp()
    survivor.connect(address)
    newcomer.connect(mine)
    newcomer.prepare_stream_in(20_000)
    receiving = newcomer.begin("stream_in", 20_000, 100)
    assert survivor.stream_out(20_000, 100) == (100, "SUCCESS")
    assert receiving.result() == (100, "SUCCESS")
    assert survivor.stream_ops(op, 100_000, region, 20) == (20, "SUCCESS")
