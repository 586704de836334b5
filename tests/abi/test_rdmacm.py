# SPDX-License-Identifier: BSD-3-Clause
"""librdmacm.so.1, the drop-in: its symbols, and csrc/abi/rdma_abi.h against the system's header."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import nupa

LIBRARY = Path(nupa.__file__).parent / "lib" / "librdmacm.so.1"
HERE = Path(__file__).resolve().parent
CSRC = HERE.parents[1] / "csrc"
MAP = CSRC / "librdmacm" / "librdmacm.map"
SYSTEM_HEADER = Path("/usr/include/rdma/rdma_cma.h")
# Youngest first: which list of rdma_list.h a header must satisfy.
LEVELS = (65, 44)
PROGRAMS = (
    "cmtime",
    "mckey",
    "rcopy",
    "rdma_client",
    "rdma_server",
    "rdma_xclient",
    "rdma_xserver",
    "riostream",
    "rping",
    "rstream",
    "ucmatose",
    "udaddy",
    "udpong",
    "ib_write_bw",
    "ucx_info",
)
LIBRARIES = ("libfabric.so.1", "ucx/libuct_rdmacm.so.0", "dist-packages/pyverbs/*.so")


def tool(name: str, package: str) -> str:
    if (found := shutil.which(name)) is None:
        pytest.skip(f"no {name}: apt-get install {package}")
    return found


def symbols(path: Path, *, defined: bool) -> set[tuple[str, str]]:
    """Returns (node, name) of each symbol of librdmacm that *path* exports (*defined*) or
    imports."""
    command = [tool("readelf", "binutils"), "-W", "--dyn-syms", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = set()
    for line in text.splitlines():
        field = line.split()
        if len(field) < 8 or (field[6] != "UND") is not defined:
            continue
        if match := re.match(r"(\w+)@@?(RDMACM_\d\.\d)", field[7]):
            found.add((match[2], match[1]))
    return found


def test_all_74_names_are_exported_under_their_versions() -> None:
    wanted = set()
    for node, body in re.findall(r"(RDMACM_\d\.\d) \{(.*?)\}", MAP.read_text(), re.DOTALL):
        wanted |= {(node, name) for name in re.findall(r"\t\t(\w+);", body)}
    assert len(wanted) == 74
    assert symbols(LIBRARY, defined=True) == wanted


def test_the_names_and_versions_are_those_of_the_systems_library() -> None:
    found = sorted(Path("/usr/lib").glob("*/librdmacm.so.1"))
    if not found:
        pytest.skip("not installed: apt-get install librdmacm1")
    assert symbols(found[0], defined=True) - symbols(LIBRARY, defined=True) == set()


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_a_program_imports_is_exported(program: str) -> None:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"no {program}: apt-get install rdmacm-utils perftest ucx-utils")
    assert symbols(Path(path), defined=False) - symbols(LIBRARY, defined=True) == set()


@pytest.mark.parametrize("pattern", LIBRARIES)
def test_what_a_library_imports_is_exported(pattern: str) -> None:
    found = [p for root in ("/usr/lib", "/usr/lib64") for p in Path(root).glob(f"*/{pattern}")]
    if not found:
        pytest.skip(f"no {pattern}: apt-get install libfabric1 libucx0 python3-pyverbs")
    imported = set().union(*(symbols(path, defined=False) for path in found))
    assert imported - symbols(LIBRARY, defined=True) == set()


def test_it_says_its_soname_and_finds_our_libibverbs_beside_itself() -> None:
    command = [tool("readelf", "binutils"), "-W", "-d", str(LIBRARY)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"soname: \[(.*)\]", text) == ["librdmacm.so.1"]
    assert "libibverbs.so.1" in re.findall(r"Shared library: \[(.*)\]", text)
    assert re.findall(r"(?:runpath|rpath): \[(.*)\]", text) == ["$ORIGIN"]


def layout(folder: Path, *options: str) -> dict[str, str] | None:
    """Returns the output of rdma_layout.c, compiled with *options*: name to value.

    None: it does not compile.
    """
    program = folder / "layout"
    compiler = shutil.which("cc") or tool("gcc", "gcc")
    command = [compiler, "-std=gnu11", *options, str(HERE / "rdma_layout.c"), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    text = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return dict(line.rsplit(" ", 1) for line in text.splitlines())


def our_layout(folder: Path, level: int) -> dict[str, str]:
    found = layout(folder, f"-DABI_LEVEL={level}", "-DNUPA_ABI", "-iquote", str(CSRC))
    assert found is not None
    return found


def test_every_offset_and_constant_is_the_one_of_the_systems_header(tmp_path: Path) -> None:
    if not SYSTEM_HEADER.exists():
        pytest.skip(f"no {SYSTEM_HEADER}: apt-get install librdmacm-dev")
    for level in LEVELS:
        system = layout(tmp_path, f"-DABI_LEVEL={level}")
        if system is not None:
            break
    assert system is not None
    assert len(system) > 130
    assert our_layout(tmp_path, level) == system


def test_sizes_are_those_that_compiled_programs_allocate(tmp_path: Path) -> None:
    facts = {  # LP64 with glibc
        "struct rdma_cm_id": 416,
        "struct rdma_cm_event": 80,
        "struct rdma_conn_param": 24,
        "struct rdma_ud_param": 56,
        "struct rdma_addrinfo": 96,
        "struct rdma_event_channel": 4,
        "struct ibv_sa_path_rec": 64,
    }
    ours = our_layout(tmp_path, LEVELS[0])
    assert {name: int(ours[f"sizeof({name})"]) for name in facts} == facts


def test_every_constant_and_structure_of_our_header_is_compared() -> None:
    listed = (HERE / "rdma_list.h").read_text()
    header = (CSRC / "abi" / "rdma_abi.h").read_text()
    constants = set(re.findall(r"\bCONSTANT\((\w+)\)", listed))
    structures = set(re.findall(r"\bSIZE\(struct (\w+)\)", listed))
    assert set(re.findall(r"\b((?:RDMA|RAI)_\w+) =", header)) - constants == set()
    assert set(re.findall(r"^struct (\w+) \{$", header, re.MULTILINE)) - structures == set()
