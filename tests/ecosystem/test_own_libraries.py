# SPDX-License-Identifier: BSD-3-Clause
"""Programs that bring a libibverbs and librdmacm of their own, as wheels, conda and Spack do."""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs.needs import needs

from .lab import Lab

SOURCES = Path(__file__).with_name("c")
LIBRARIES = Path(sys.modules["nupa"].__path__[0], "lib")
WHEELS = "libibverbs-0123abcd.so.1.14.59.0"
VERSIONS = "IBVERBS_1.1 { global: ibv_get_device_list; ibv_free_device_list; local: *; };"


def system_library(name: str) -> Path:
    """Returns the system's file of that name."""
    command = ["gcc", f"-print-file-name={name}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return Path(found.stdout.strip()).resolve(strict=True)


def gcc(output: Path, *options: str) -> Path:
    command = ["gcc", "-O1", "-Wall", "-o", str(output), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture
def brought(tmp_path: Path) -> Path:
    """A folder with the system's real libraries."""
    folder = tmp_path / "brought"
    folder.mkdir()
    for name in ("libibverbs.so.1", "librdmacm.so.1"):
        shutil.copy(system_library(name), folder / name)
    return folder


@pytest.fixture
def linked(brought: Path) -> str:
    """A program linked with these by DT_RPATH, which LD_LIBRARY_PATH comes after."""
    source, program = SOURCES / "lists_devices.c", brought / "program"
    libraries = [f"-L{brought}", "-l:libibverbs.so.1", "-l:librdmacm.so.1"]
    rpath = f"-Wl,--disable-new-dtags,-rpath,{brought}"
    return str(gcc(program, "-DCM", str(source), *libraries, rpath))


def stub(folder: Path, name: str, *options: str) -> Path:
    """Builds a libibverbs without devices."""
    folder.mkdir(exist_ok=True)
    (folder / "versions").write_text(VERSIONS)
    script = f"-Wl,--version-script={folder / 'versions'}"
    return gcc(folder / name, "-shared", "-fPIC", str(SOURCES / "brought.c"), script, *options)


def user_of(library: Path, name: str) -> str:
    """Builds a library that needs *library*, with a DT_RPATH."""
    rpath = f"-Wl,--disable-new-dtags,-rpath,{library.parent}"
    source = ["-DUSER", str(SOURCES / "brought.c"), str(library)]
    return str(gcc(library.parent / name, "-shared", "-fPIC", *source, rpath))


def test_a_program_with_an_rpath_sees_the_device(fabric: Lab, linked: str) -> None:
    assert fabric.must(fabric.on(None, linked)) == "nupa_rdma0\nnupa_rdma0\n"


def test_so_does_a_child_of_a_script(fabric: Lab, linked: str) -> None:
    shell = fabric.on(None, "sh", "-c", f"(cd / && {linked} | cat)")
    assert fabric.must(shell) == "nupa_rdma0\nnupa_rdma0\n"


def test_a_library_under_the_name_that_a_wheel_gives_it_is_not_used(
    fabric: Lab, tmp_path: Path
) -> None:
    library = stub(tmp_path / "x.libs", WHEELS, f"-Wl,-soname,{WHEELS}")
    rpath = f"-Wl,--disable-new-dtags,-rpath,{library.parent}"
    program = gcc(tmp_path / "program", str(SOURCES / "lists_devices.c"), str(library), rpath)
    assert fabric.must([str(program)], env={"LD_LIBRARY_PATH": ""}) == "none\n"
    assert fabric.must(fabric.on(None, str(program))) == "nupa_rdma0\n"


def test_a_library_that_is_opened_is_ours_by_any_path_and_name(
    fabric: Lab, brought: Path, tmp_path: Path
) -> None:
    opens = fabric.compile(SOURCES / "opens_libraries.c")
    renamed = stub(tmp_path / "x.libs", WHEELS, f"-Wl,-soname,{WHEELS}")
    versioned = stub(tmp_path / "y", "libibverbs.so.1.14.44.0")
    names = [str(brought / "libibverbs.so.1"), str(renamed), str(versioned)]
    names += ["libibverbs.so", "libibverbs.so.1", "/nowhere/libibverbs.so.1"]
    assert fabric.must(fabric.on(None, opens, *names)).split() == ["1"] * len(names)


def test_a_launcher_that_sets_ld_library_path_changes_nothing(fabric: Lab, brought: Path) -> None:
    # As AppImages and PyInstaller's programs do.
    devices = needs("ibv_devices", "ibverbs-utils")
    launcher = ["env", f"LD_LIBRARY_PATH={brought}", devices]
    assert "nupa_rdma0" in fabric.must(fabric.on(None, *launcher))


def test_drivers_that_a_program_brings_load_with_ours(fabric: Lab, brought: Path) -> None:
    opens = fabric.compile(SOURCES / "opens_libraries.c")
    names = []
    for name in ("libmlx5.so.1", "libefa.so.1"):  # they import the private symbols
        shutil.copy(system_library(name), brought / name)
        names.append(str(brought / name))
    assert fabric.must(fabric.on(None, opens, *names)).split() == ["1", "1"]


def test_other_libraries_are_opened_as_they_are(fabric: Lab, tmp_path: Path) -> None:
    opens = fabric.compile(SOURCES / "opens_libraries.c")
    names = ("libibverbs.so.2", "libibverbs-mine.so.1", "libibverbs.so.1x", "libibverbs2.so.1")
    others = [str(stub(tmp_path / "others", name)) for name in names]
    assert fabric.must(fabric.on(None, opens, *others)).split() == ["0"] * len(names)


def test_plug_ins_that_need_a_brought_library_call_ours(fabric: Lab, tmp_path: Path) -> None:
    renamed = stub(tmp_path / "wheel", WHEELS, f"-Wl,-soname,{WHEELS}")
    by_path = stub(tmp_path / "spack", "libibverbs.so.1")  # no soname: needed by its path
    by_name = stub(tmp_path / "conda", "libibverbs.so.1", "-Wl,-soname,libibverbs.so.1")
    plug_ins = [user_of(library, "plugin.so") for library in (renamed, by_path, by_name)]
    script = (
        "import ctypes, sys\n"
        "for name in sys.argv[1:]: print(ctypes.CDLL(name).own_devices())\n"
        "for name in sys.argv[:0:-1]: print(ctypes.CDLL(name).own_devices())\n"
    )
    python = fabric.on(None, sys.executable, "-c", script, *plug_ins)
    assert fabric.must(python).split() == ["1"] * 6


def test_dlopen_searches_the_runpath_of_its_caller(fabric: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "plugins"
    stub(folder, "plugin.so")
    opens = gcc(
        tmp_path / "opens",
        str(SOURCES / "opens_libraries.c"),
        f"-Wl,--enable-new-dtags,-rpath,{folder}",
    )
    assert fabric.must(fabric.on(None, str(opens), "plugin.so")) == "0\n"


def test_a_program_keeps_its_own_libraries_on_request(
    fabric: Lab, linked: str, tmp_path: Path
) -> None:
    keep = {"NUPA_PRELOAD": "0", "NUPA_QUIET": "1"}
    opens = fabric.compile(SOURCES / "opens_libraries.c")
    own = str(stub(tmp_path / "own", "libibverbs.so.1"))
    assert fabric.must(fabric.on(None, linked), env=keep).splitlines()[0] == "none"
    assert fabric.must(fabric.on(None, opens, own), env=keep) == "0\n"
    inner = fabric.on(None, "env", "NUPA_PRELOAD=0", *fabric.on(None, "printenv", "LD_PRELOAD"))
    assert fabric.must(inner) == f"{LIBRARIES / 'libnupa_shim.so'}\n"


def test_doctor_says_whether_this_works(lab: Lab) -> None:
    shown = {check["name"]: check for check in json.loads(lab.nupa("doctor", "--json"))}
    own = shown["own libibverbs"]
    assert (own["state"], own["found"]) == ("ok", "preloaded")


def test_what_is_preloaded_defines_no_name_of_libc(fabric: Lab) -> None:
    preload = fabric.must(fabric.on(None, "printenv", "LD_PRELOAD")).strip().split(":")
    table = subprocess.run(
        ["nm", "-D", "--defined-only", *preload[:-1]], capture_output=True, text=True, check=True
    )
    names = set(re.findall(r"^[0-9a-f]+ [A-Z] (\w+)", table.stdout, re.MULTILINE))
    libc = ctypes.CDLL("libc.so.6")
    assert len(names) > 200
    assert {name for name in names if hasattr(libc, name)} == set()
