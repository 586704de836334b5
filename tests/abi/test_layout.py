# SPDX-License-Identifier: BSD-3-Clause
"""csrc/abi/verbs_abi.h against the system's <infiniband/verbs.h>: every size, offset, value."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
CSRC = HERE.parents[1] / "csrc"
SYSTEM_HEADER = Path("/usr/include/infiniband/verbs.h")
# Youngest first: which list of abi_list.h a header must satisfy.
LEVELS = (65, 59, 44)


def compile_layout(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Compiles layout.c into *out*; the caller looks at the return code."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler: apt-get install gcc")
    command = [compiler, "-std=gnu11", *options, str(HERE / "layout.c"), "-o", str(out)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def layout(program: Path) -> dict[str, str]:
    """Returns the output of *program*, a compiled layout.c: name to value."""
    text = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return dict(line.rsplit(" ", 1) for line in text.splitlines())


def our_layout(folder: Path, level: int) -> dict[str, str]:
    program = folder / f"ours{level}"
    options = (f"-DABI_LEVEL={level}", "-DNUPA_ABI", "-iquote", str(CSRC))
    done = compile_layout(program, *options)
    assert done.returncode == 0, done.stderr
    return layout(program)


def test_every_offset_and_constant_is_the_one_of_the_systems_header(tmp_path: Path) -> None:
    if not SYSTEM_HEADER.exists():
        pytest.skip(f"no {SYSTEM_HEADER}: apt-get install libibverbs-dev")
    program = tmp_path / "system"
    for level in LEVELS:
        done = compile_layout(program, f"-DABI_LEVEL={level}")
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stderr
    system = layout(program)
    assert len(system) > 900
    ours = our_layout(tmp_path, level)
    assert {name: ours[name] for name in system} == system


def test_sizes_are_those_that_compiled_programs_allocate(tmp_path: Path) -> None:
    ours = our_layout(tmp_path, 65)
    facts = {  # LP64 with glibc; rdma-core v59 to v65
        "struct ibv_wc": 48,
        "struct ibv_sge": 16,
        "struct ibv_send_wr": 128,
        "struct ibv_recv_wr": 32,
        "struct ibv_grh": 40,
        "struct ibv_ah_attr": 32,
        "struct ibv_qp_attr": 144,
        "struct ibv_qp_init_attr": 64,
        "struct ibv_qp_init_attr_ex": 136,
        "struct ibv_device_attr": 232,
        "struct ibv_device_attr_ex": 400,
        "struct ibv_port_attr": 56,
        "struct ibv_gid_entry": 32,
    }
    assert {name: int(ours[f"sizeof({name})"]) for name in facts} == facts


def test_every_constant_and_structure_of_our_header_is_compared() -> None:
    listed = (HERE / "abi_list.h").read_text()
    constants = set(re.findall(r"\bCONSTANT\((\w+)\)", listed))
    structures = set(re.findall(r"\bSIZE\((?:struct|union) (\w+)\)", listed))
    enums = (CSRC / "abi" / "verbs_abi_enums.h").read_text()
    headers = ("verbs_abi_types.h", "verbs_abi.h")
    types = "".join((CSRC / "abi" / header).read_text() for header in headers)
    named = set(re.findall(r"\b(IBV_\w+) =", enums))
    defined = set(re.findall(r"^(?:struct|union) (\w+) \{$", types, re.MULTILINE))
    assert len(named) > 350
    assert len(defined) > 70
    assert named - constants == set()
    assert defined - structures == set()
