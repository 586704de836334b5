# SPDX-License-Identifier: BSD-3-Clause
"""nupa.cli.run.reach: programs that will not load our libraries, by their files."""

from __future__ import annotations

import os
import random
import struct
import sys
from pathlib import Path

import pytest

from nupa.cli.run.reach import unreached

NOBODY = 65534
EXEC, DYN = 2, 3
DYNAMIC, INTERP = 2, 3
NULL, SONAME = 0, 14


def elf(kind: int, *segments: tuple[int, bytes], bits: int = 64, machine: int = 62) -> bytes:
    """Builds a file with these segments, as elf(5) has it."""
    wide = bits == 64
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1, 1]).ljust(12, b"\0")
    header_bytes, entry_bytes = (64, 56) if wide else (52, 32)
    at = header_bytes + entry_bytes * len(segments)
    header = struct.pack(
        "=HHIQQQIHHHHHH" if wide else "=HHIIIIIHHHHHH",
        *(kind, machine, 1, 0, header_bytes, 0, 0),
        *(header_bytes, entry_bytes, len(segments), 0, 0, 0),
    )
    table, data = b"", b""
    for what, content in segments:
        size = len(content)
        if wide:
            table += struct.pack("=IIQQQQQQ", what, 4, at + len(data), 0, 0, size, size, 1)
        else:
            table += struct.pack("=IIIIIIII", what, at + len(data), 0, 0, size, size, 4, 1)
        data += content
    return ident + header + table + data


GLIBC = (INTERP, b"/lib64/ld-linux-x86-64.so.2\0")
MUSL = (INTERP, b"/lib/ld-musl-x86_64.so.1\0")
ANONYMOUS = (DYNAMIC, struct.pack("=qQ", NULL, 0))
NAMED = (DYNAMIC, struct.pack("=qQqQ", SONAME, 1, NULL, 0))


@pytest.fixture
def library(tmp_path: Path) -> str:
    path = tmp_path / "library"
    path.write_bytes(elf(DYN, NAMED))
    return str(path)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program"
    path.write_bytes(elf(DYN, GLIBC, ANONYMOUS))
    path.chmod(0o755)
    return path


def why(program: Path | str, library: str) -> str | None:
    return unreached(str(program), os.environ, library)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (elf(EXEC), "is linked statically"),
        (elf(DYN, ANONYMOUS), "is linked statically"),
        (elf(DYN, MUSL, ANONYMOUS), "uses the C library musl"),
        (elf(EXEC, GLIBC, bits=32, machine=3), "is a 32-bit program"),
        (elf(DYN, GLIBC, machine=183), "is for another processor"),
    ],
)
def test_a_program_that_cannot_load_them_is_told(
    program: Path, library: str, content: bytes, says: str
) -> None:
    program.write_bytes(content)
    told = why(program, library)
    assert told
    assert told.startswith(f"{program} {says}")
    assert "sees no RDMA device" in told


def test_nothing_is_told_of_an_ordinary_program_a_loader_and_a_script(
    program: Path, library: str
) -> None:
    assert why(program, library) is None
    program.write_bytes(elf(DYN, NAMED))  # ld.so honours LD_PRELOAD
    assert why(program, library) is None
    program.write_text(f"#!{sys.executable} -x\n")
    assert why(program, sys.executable) is None


def test_a_script_is_its_interpreter(tmp_path: Path, program: Path, library: str) -> None:
    program.write_bytes(elf(EXEC))
    script = tmp_path / "script"
    script.write_text(f"#! {program} -x\n")
    assert str(why(script, library)).startswith(f"{program} is linked statically")


def test_a_program_is_looked_for_as_the_shell_does(program: Path, library: str) -> None:
    program.write_bytes(elf(EXEC))
    path = {"PATH": f"/nowhere:{program.parent}"}
    assert str(unreached("program", path, library)).startswith(f"{program} is linked")
    assert unreached("other", path, library) is None


def test_what_is_no_program_is_left_to_its_start(tmp_path: Path, library: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "text").write_text("text")
    for path in (tmp_path, tmp_path / "fifo", tmp_path / "text", tmp_path / "missing", ""):
        assert why(path, library) is None


def test_no_file_whatever_its_bytes_is_an_exception(program: Path, library: str) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    good = elf(DYN, GLIBC, NAMED)
    for _ in range(500):
        content = bytearray(good[: rng.randrange(len(good) + 1)])
        for _ in range(rng.randrange(4)):
            if content:
                content[rng.randrange(len(content))] = rng.choice((0, 1, 0x7F, 0xFF))
        program.write_bytes(content)
        assert isinstance(why(program, library), str | None), seed


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_program_that_gains_rights_is_told(program: Path, library: str) -> None:
    if os.statvfs(program).f_flag & os.ST_NOSUID:
        pytest.skip(f"{program.parent} is mounted nosuid")
    for mode, says in ((0o4755, f"set-uid (user {NOBODY})"), (0o2755, f"set-gid (group {NOBODY})")):
        os.chown(program, NOBODY, NOBODY)
        program.chmod(mode)
        assert f"is {says}: the loader keeps our libraries from it" in str(why(program, library))
    program.chmod(0o2745)  # set-gid without x: mandatory locks of old
    assert why(program, library) is None
    os.chown(program, os.geteuid(), os.getegid())
    program.chmod(0o6755)  # no right that we lack
    assert why(program, library) is None
