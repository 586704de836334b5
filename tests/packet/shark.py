# SPDX-License-Identifier: BSD-3-Clause
"""Runs tshark and capinfos with a home of their own, without the user's settings."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from nupa.packet.wireshark.dissector import install

#: From Wireshark 4.4 on no Lua script is loaded as root: for root, another user that may read all.
NOT_ROOT = (
    (
        *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
        *("--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--"),
    )
    if os.geteuid() == 0
    else ()
)


def run(home: Path, *argv: str | Path) -> str:
    """Returns the output of a program of Wireshark's; a complaint about Lua fails the test."""
    if shutil.which(str(argv[0])) is None:
        pytest.skip(f"{argv[0]} is missing: Debian's tshark has it (.ci/setup packages test)")
    done = subprocess.run(
        [*NOT_ROOT, *(str(arg) for arg in argv)],
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")},
    )
    assert done.returncode == 0, done.stderr
    assert "Lua" not in done.stderr, done.stderr
    assert "Lua Error" not in done.stdout, done.stdout
    return done.stdout


def tshark(home: Path, file: Path, *args: str) -> str:
    """Returns tshark's output for *file*, with our dissector."""
    return run(home, "tshark", "-n", "-X", f"lua_script:{install(home)}", "-r", file, *args)


def dissected(home: Path, file: Path) -> list[list[tuple[str, str, str]]]:
    """Returns the fields of our dissector for each packet, in order: (name, value, text)."""
    root = ElementTree.fromstring(tshark(home, file, "-T", "pdml"))
    return [
        [
            (field.get("name", ""), field.get("show", ""), field.get("showname", ""))
            for field in packet.iter("field")
            if field.get("name", "").startswith("nupa.")
        ]
        for packet in root.iter("packet")
    ]
