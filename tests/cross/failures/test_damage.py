# SPDX-License-Identifier: BSD-3-Clause
"""Fabrics that are not there, of another version, damaged, or damaged while they are used."""

from __future__ import annotations

import contextlib
import os
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nupa.fabric import Fabric, FabricError, LocalError
from nupa.topology.topology import star
from tests.cross.conftest import Cli, Pair
from tests.cross.peers.peer import Peer, PeerError

# csrc/segment/layout/layout.h, struct nupa_superblock
VERSION_AT = 8
SLOTS_OFF_AT, ARENAS_OFF_AT = 96, 112
SUPERBLOCK_BYTES = 320
CHECKED_BYTES = 228  # up to `checksum`, and with it

SEEDS = [1, 2, 3, 4, 5, 6, 7, 8]


def word_at(path: str, offset: int) -> int:
    with Path(path).open("rb") as file:
        file.seek(offset)
        return int(struct.unpack("<Q", file.read(8))[0])


def patch(path: str, offset: int, data: bytes) -> None:
    with Path(path).open("r+b") as file:
        file.seek(offset)
        file.write(data)


@pytest.fixture
def path(nupa_dir: Path) -> str:  # noqa: ARG001
    """A fabric that is not in use."""
    with Fabric.create("cross", star(2)) as fabric:
        return fabric.path


def each_face_refuses(path: str, peer: Peer, cli: Cli, *words: str) -> None:
    """Checks that nupa.fabric, the command, and the library under `nupa run` say these *words*."""
    with pytest.raises(FabricError) as error:
        Fabric.open("cross")
    # A fresh process without a Python face in between: what a drop-in user meets.
    peer.set_env(NUPA_FABRIC=path)
    with pytest.raises(PeerError) as refused:
        peer.device_names()
    assert refused.value.kind == "PyverbsRDMAError"
    shown = cli("show", "cross")
    ran = cli("run", "--fabric", "cross", "--", "true")
    assert (shown.returncode, ran.returncode) == (1, 1)
    for text in (str(error.value), shown.stderr, ran.stderr):
        for word in words:
            assert word in text
    assert len(shown.stderr.splitlines()) == 1


# --- not there ----------------------------------------------------------------------------------


def test_no_fabric_of_that_name(fabric: Fabric, cli: Cli) -> None:
    with pytest.raises(LocalError, match=r"no fabric is named 'absent'; up are: cross"):
        Fabric.open("absent")

    for command in (["show", "absent"], ["run", "--fabric", "absent", "--", "true"]):
        result = cli(*command)
        assert result.returncode == 1
        assert "no fabric is named 'absent'; up are: cross" in result.stderr
        assert result.stdout == ""
    assert fabric.name == "cross"


def test_a_program_whose_fabric_was_taken_down_gets_no_device(
    nupa_dir: Path, spawn: Callable[[], Peer]
) -> None:
    peer = spawn()
    peer.set_env(NUPA_FABRIC=str(nupa_dir / "nupa-0-gone"))

    with pytest.raises(PeerError) as error:
        peer.device_names()
    assert "No such file" in error.value.text


def test_a_host_that_the_topology_does_not_have(
    fabric: Fabric, spawn: Callable[[], Peer], cli: Cli
) -> None:
    peer = spawn()
    with pytest.raises(PeerError) as error:
        peer.attach(fabric.name, "host7")
    assert "no host 'host7': its hosts are host0, host1" in error.value.text
    with pytest.raises(PeerError):
        peer.attach(fabric.name, 2)

    for command, said in (
        (["run", "--host", "host7", "--", "true"], "no host 'host7': its hosts are host0, host1"),
        (["port", "host7", "down"], "no port, host or link is named 'host7': ports are host0/1,"),
    ):
        result = cli(*command)
        assert result.returncode == 1
        assert said in result.stderr

    peer.set_env(NUPA_FABRIC=fabric.path, NUPA_HOST="host7")
    with pytest.raises(PeerError):
        peer.device_names()
    peer.set_env(NUPA_HOST="host1")
    assert peer.device_names() == ["nupa_rdma0"]


# --- topologies ---------------------------------------------------------------------------------


def test_more_hosts_than_ports(nupa_dir: Path, cli: Cli) -> None:
    file = nupa_dir / "crowded.toml"
    file.write_text(
        '[[switch]]\nname = "s"\nports = 2\n\n[[host]]\nname = "h"\ncount = 3\nswitch = "s"\n'
    )

    result = cli("up", "--topology", str(file))

    assert result.returncode == 1
    assert str(file) in result.stderr
    assert "h2" in result.stderr
    assert "2 ports" in result.stderr
    assert cli("ls").stdout.count("default") == 0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[[switch]]\nname = "s"\nports = \n', 3),
        ('[[switch]\nname = "s"\n', 1),
        ("[link]\nwidth = 4\nwidth = 8\n", 3),
        ('[link]\nspeed = "Gen5', 2),
    ],
)
def test_malformed_toml_is_refused_with_its_line(
    nupa_dir: Path, cli: Cli, text: str, line: int
) -> None:
    file = nupa_dir / "broken.toml"
    file.write_text(text)

    result = cli("up", "--topology", str(file))

    assert result.returncode == 1
    assert f"{file}:{line}: " in result.stderr


# --- damaged ------------------------------------------------------------------------------------


def test_another_layout_version_is_named_beside_ours(
    path: str, spawn: Callable[[], Peer], cli: Cli
) -> None:
    ours = word_at(path, VERSION_AT) & 0xFFFFFFFF
    patch(path, VERSION_AT, struct.pack("<I", ours + 41))

    each_face_refuses(path, spawn(), cli, f"version {ours + 41}", f"version {ours}", "again")


def test_a_truncated_segment(path: str, spawn: Callable[[], Peer], cli: Cli) -> None:
    peer = spawn()
    whole = Path(path).stat().st_size
    for size in (whole - 1, word_at(path, ARENAS_OFF_AT), 4096, SUPERBLOCK_BYTES, 100, 1):
        os.truncate(path, size)
        with pytest.raises(PeerError) as error:
            peer.open_fabric("cross")
        assert error.value.kind == "FabricError"
        assert f"truncated: {size} bytes" in error.value.text
    each_face_refuses(path, spawn(), cli, "truncated")


def test_a_zeroed_segment(path: str, spawn: Callable[[], Peer], cli: Cli) -> None:
    patch(path, 0, bytes(word_at(path, ARENAS_OFF_AT)))

    each_face_refuses(path, spawn(), cli, "zeroed")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_segment_filled_with_random_bytes(
    path: str, spawn: Callable[[], Peer], seed: int
) -> None:
    print(f"seed {seed}")
    noise = random.Random(seed)
    arenas_off = word_at(path, ARENAS_OFF_AT)
    peer = spawn()
    # From the start, behind the magic, behind the version: ever later checks have to find it.
    for offset in (16, 8, 0):
        patch(path, offset, noise.randbytes(arenas_off - offset))
        with pytest.raises(PeerError) as error:
            peer.open_fabric("cross")
        assert error.value.kind == "FabricError"


@pytest.mark.parametrize("seed", SEEDS)
def test_any_changed_byte_of_what_never_changes_is_found(
    path: str, spawn: Callable[[], Peer], seed: int
) -> None:
    print(f"seed {seed}")
    noise = random.Random(seed)
    peer = spawn()
    for _ in range(30):
        at = noise.randrange(CHECKED_BYTES)
        with Path(path).open("rb") as file:
            file.seek(at)
            before = file.read(1)
        patch(path, at, bytes([before[0] ^ 1 << noise.randrange(8)]))
        with pytest.raises(PeerError) as error:
            peer.open_fabric("cross")
        assert error.value.kind == "FabricError", f"byte {at}"
        patch(path, at, before)
    assert peer.open_fabric("cross") == path


@pytest.mark.parametrize("what", ["folder", "fifo", "link to nothing", "unreadable"])
def test_what_is_no_file_is_no_fabric(
    nupa_dir: Path, spawn: Callable[[], Peer], cli: Cli, what: str
) -> None:
    at = nupa_dir / f"nupa-{os.geteuid()}-odd"
    if what == "folder":
        at.mkdir()
    elif what == "fifo":
        os.mkfifo(at)
    elif what == "unreadable":
        at.write_bytes(b"")
    else:
        at.symlink_to(nupa_dir / "nothing")
    peer = spawn()

    with pytest.raises(PeerError) as error:
        peer.open_fabric("odd")

    assert error.value.kind in ("LocalError", "FabricError")
    assert str(at) in error.value.text
    assert cli("show", "odd").returncode == 1


def test_a_damaged_fabric_can_be_taken_down(path: str, cli: Cli) -> None:
    patch(path, 0, bytes(SUPERBLOCK_BYTES))

    assert cli("down", "cross").returncode == 0

    assert not Path(path).exists()


# --- damaged while it is used -------------------------------------------------------------------


def data_ranges(fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields where the sparse file has data, from *start* to *end*."""
    at = start
    while at < end:
        try:
            first = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            return
        if first >= end:
            return
        at = min(end, os.lseek(fd, first, os.SEEK_HOLE))
        yield first, at


@pytest.mark.parametrize("share", [1.0, 0.01], ids=["all", "some"])
@pytest.mark.parametrize("where", ["arenas", "slots"])
@pytest.mark.parametrize("mover", ["shared", "cma", "relay"])
@pytest.mark.parametrize("seed", SEEDS[:3])
def test_processes_outlive_random_bytes_in_a_segment_that_they_use(
    make_pair: Callable[..., Pair], fabric: Fabric, seed: int, mover: str, where: str, share: float
) -> None:
    print(f"seed {seed}")
    pair = make_pair(mover=mover, path={"timeout": 8, "retry_cnt": 1})
    length = 5000
    pair.b.prepare_stream_in(length)
    receiving = pair.b.begin("stream_in", length, note_every=50)
    sending = pair.a.begin("stream_out", length, patience_s=0.2)
    receiving.note()

    scribble(fabric.path, where, share, random.Random(seed))

    # Transfers may fail, or wait; they must not crash, nor keep their process from ending.
    for pending in (sending, receiving):
        pending.stop()
        with contextlib.suppress(PeerError):
            pending.result()
    for peer, region in ((pair.a, pair.b_region), (pair.b, pair.a_region)):
        for op in ("write", "read", "faa"):
            with contextlib.suppress(PeerError):
                peer.post(op, 0, 0, 8, to=region)
                peer.wait(1, timeout=0.02)
    for peer in (pair.a, pair.b):
        peer.leave()


def scribble(path: str, where: str, share: float, noise: random.Random) -> None:
    """Writes random bytes over a *share* of the slots, or of all that the arenas have."""
    fd = os.open(path, os.O_RDWR)
    arenas_off = word_at(path, ARENAS_OFF_AT)
    ranges = (
        data_ranges(fd, arenas_off, Path(path).stat().st_size)
        if where == "arenas"
        else iter([(word_at(path, SLOTS_OFF_AT), arenas_off)])
    )
    for start, end in ranges:
        for at in range(start, end, 64):
            if noise.random() < share:
                os.pwrite(fd, noise.randbytes(64), at)
    os.close(fd)
