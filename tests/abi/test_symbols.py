# SPDX-License-Identifier: BSD-3-Clause
"""libibverbs.so.1, the drop-in: which symbols it exports, under which versions."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

import nupa

LIBRARY = Path(nupa.__file__).parent / "lib" / "libibverbs.so.1"
LIST = Path(__file__).resolve().parent / "symbols.txt"
# Driver ABIs, by the release that began each: v34 to v56, v57 and v58, v59 to v63, v64, v65.
DRIVER_ABIS = (34, 57, 59, 64, 65)

# Files of Debian's packages that link to libibverbs: programs, and libraries by soname.
PROGRAMS = {
    "ibverbs-utils": (
        "ibv_devices",
        "ibv_devinfo",
        "ibv_asyncwatch",
        "ibv_rc_pingpong",
        "ibv_uc_pingpong",
        "ibv_ud_pingpong",
        "ibv_srq_pingpong",
        "ibv_xsrq_pingpong",
    ),
    "perftest": (
        "ib_read_bw",
        "ib_read_lat",
        "ib_write_bw",
        "ib_write_lat",
        "ib_send_bw",
        "ib_send_lat",
        "ib_atomic_bw",
        "ib_atomic_lat",
        "raw_ethernet_bw",
    ),
    "rdmacm-utils": ("rping", "ucmatose", "udaddy", "rdma_client", "rstream"),
    "ucx-utils": ("ucx_info",),
}
LIBRARIES = {
    "librdmacm1": "librdmacm.so.1",
    "ibverbs-providers": "libmlx5.so.1",
    "ibverbs-providers (efa)": "libefa.so.1",
    "libfabric1": "libfabric.so.1",
    "libucx0": "ucx/libuct_ib.so.0",
    "openmpi-bin (of Open MPI 4)": "libmca_common_verbs.so.*",
    "python3-pyverbs": "dist-packages/pyverbs/*.so",
}
# Debian names the providers of a driver ABI so.
PLUGINS = "libibverbs/*-rdmav*.so"


class Symbol(NamedTuple):
    """A name under a version node."""

    node: str
    name: str


def dynamic_symbols(path: Path, *, defined: bool) -> set[Symbol]:
    """Returns the symbols with an IBVERBS_ version that *path* exports (*defined*) or imports."""
    if shutil.which("readelf") is None:
        pytest.skip("no readelf: apt-get install binutils")
    command = ["readelf", "-W", "--dyn-syms", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = set()
    for line in text.splitlines():
        field = line.split()
        if len(field) < 8 or (field[6] != "UND") is not defined:
            continue
        if match := re.match(r"(\w+)@@?(IBVERBS_\w+(?:\.\d+)?)", field[7]):
            found.add(Symbol(match[2], match[1]))
    return found


def system_libraries(pattern: str) -> list[Path]:
    return sorted(p for root in ("/usr/lib", "/usr/lib64") for p in Path(root).glob(f"*/{pattern}"))


@pytest.fixture(scope="module")
def exported() -> set[Symbol]:
    return dynamic_symbols(LIBRARY, defined=True)


def listed() -> set[Symbol]:
    """Returns the symbols of all versions, those between libibverbs and drivers in each node."""
    found = set()
    for line in LIST.read_text().splitlines():
        if line.startswith("#"):
            continue
        symbol = Symbol(*line.split())
        if symbol.node == "IBVERBS_PRIVATE":
            found |= {Symbol(f"{symbol.node}_{abi}", symbol.name) for abi in DRIVER_ABIS}
        else:
            found.add(symbol)
    return found | {
        Symbol(f"IBVERBS_PRIVATE_{abi}", f"verbs_register_driver_{abi}") for abi in DRIVER_ABIS
    }


def test_every_symbol_of_v34_to_v65_is_exported_under_its_version(exported: set[Symbol]) -> None:
    wanted = listed()
    assert len(wanted) == 128 + len(DRIVER_ABIS) * (91 + 1)
    assert wanted - exported == set()


def test_no_symbol_is_exported_that_no_version_has(exported: set[Symbol]) -> None:
    assert exported - listed() == set()


@pytest.mark.parametrize("package", PROGRAMS)
def test_every_symbol_that_programs_import_is_exported(package: str, exported: set[Symbol]) -> None:
    found = [path for name in PROGRAMS[package] if (path := shutil.which(name))]
    if not found:
        pytest.skip(f"not installed: apt-get install {package}")
    imported = set().union(*(dynamic_symbols(Path(path), defined=False) for path in found))
    assert imported - exported == set()


@pytest.mark.parametrize("package", LIBRARIES)
def test_every_symbol_that_libraries_import_is_exported(
    package: str, exported: set[Symbol]
) -> None:
    found = system_libraries(LIBRARIES[package])
    if not found:
        pytest.skip(f"not installed: apt-get install {package.split()[0]}")
    imported = set().union(*(dynamic_symbols(path, defined=False) for path in found))
    assert imported
    assert imported - exported == set()


def test_every_symbol_that_driver_plugins_import_is_exported(exported: set[Symbol]) -> None:
    found = system_libraries(PLUGINS)
    if not found:
        pytest.skip("not installed: apt-get install ibverbs-providers")
    imported = set().union(*(dynamic_symbols(path, defined=False) for path in found))
    assert imported - exported == set()


def test_of_the_engine_only_what_our_librdmacm_needs_is_exported() -> None:
    command = ["nm", "-D", "--defined-only", str(LIBRARY)]
    if shutil.which("nm") is None:
        pytest.skip("no nm: apt-get install binutils")
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = [line.split()[-1] for line in text.splitlines()]
    assert names
    own = [name for name in names if "IBVERBS_" not in name]
    assert [name for name in own if not re.match(r"(nupa_cm_\w+@@)?NUPA_PRIVATE_1$", name)] == []


def test_the_soname_is_the_one_that_programs_ask_for() -> None:
    if shutil.which("readelf") is None:
        pytest.skip("no readelf: apt-get install binutils")
    command = ["readelf", "-W", "-d", str(LIBRARY)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"Library soname: \[(.*)\]", text) == ["libibverbs.so.1"]
