# SPDX-License-Identifier: BSD-3-Clause
"""Our rsocket_abi.h against the system's <rdma/rsocket.h>: every function and constant."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

OURS = Path(__file__).resolve().parents[2] / "csrc" / "abi" / "rsocket_abi.h"
THEIRS = Path("/usr/include/rdma/rsocket.h")
FUNCTION = re.compile(r"^[a-z_]+ \*?(r\w+)\(", re.MULTILINE)
CONSTANTS = (
    "SOL_RDMA",
    "RDMA_SQSIZE",
    "RDMA_RQSIZE",
    "RDMA_INLINE",
    "RDMA_IOMAPSIZE",
    "RDMA_ROUTE",
)
# At the end of the header.
SINCE_V65 = ["repoll_create", "repoll_ctl", "repoll_wait"]


def compiled(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler: apt-get install gcc")
    if not THEIRS.exists():
        pytest.skip(f"no {THEIRS}: apt-get install librdmacm-dev")
    source = folder / "check.c"
    source.write_text(text)
    command = [compiler, "-std=gnu11", str(source), "-o", str(folder / "check")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def declarations() -> str:
    text = OURS.read_text()
    return text[text.index("int rsocket(") : text.rindex("#endif")]


def test_both_headers_declare_the_same_functions(tmp_path: Path) -> None:
    theirs = FUNCTION.findall(THEIRS.read_text())
    if SINCE_V65[0] not in theirs:
        theirs += SINCE_V65
    assert FUNCTION.findall(declarations()) == theirs
    text = f"#include <rdma/rsocket.h>\n{declarations()}\nint main(void) {{ return 0; }}\n"
    done = compiled(tmp_path, text)
    assert done.returncode == 0, done.stderr


def test_a_function_with_other_parameters_is_seen(tmp_path: Path) -> None:
    text = "#include <rdma/rsocket.h>\nint rlisten(int socket);\nint main(void) { return 0; }\n"
    assert "rlisten" in compiled(tmp_path, text).stderr


def test_both_headers_have_the_same_constants(tmp_path: Path) -> None:
    values = []
    for header in (f'"{OURS}"', "<rdma/rsocket.h>"):
        prints = "".join(f'printf("%d\\n", {name});' for name in CONSTANTS)
        text = f"#include <stdio.h>\n#include {header}\nint main(void) {{ {prints} }}\n"
        done = compiled(tmp_path, text)
        assert done.returncode == 0, done.stderr
        run = subprocess.run([tmp_path / "check"], capture_output=True, text=True, check=True)
        values.append(run.stdout.split())
    assert values[0] == values[1]
