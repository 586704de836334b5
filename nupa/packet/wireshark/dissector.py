# SPDX-License-Identifier: BSD-3-Clause
"""Installs the Wireshark dissector of NUPA's link type: nupa.lua, with the tables of its fields."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from nupa.base.errors import LocalError
from nupa.packet.wireshark.tables import tables

NAME = "nupa.lua"
_MARK = "NUPA's link type"  # in the first lines of every version of the file


def script() -> str:
    """Returns the whole script: nupa.lua beside this file, with its tables."""
    return Path(__file__).with_name(NAME).read_text().replace("-- tables\n", tables(), 1)


def cached() -> Path:
    """Installs the script in $XDG_CACHE_HOME/nupa, else ~/.cache/nupa; returns its path."""
    return install(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "nupa")


def plugin_folder() -> Path:
    """Returns the folder of this user's Lua plugins, as `tshark -G folders` prints it."""
    tshark = shutil.which("tshark")
    if tshark is None:
        return Path.home() / ".local/lib/wireshark/plugins"  # Wireshark's default on Unix
    try:
        done = subprocess.run(
            [tshark, "-G", "folders"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise LocalError(f"`tshark -G folders` failed: {error}") from error
    for line in done.stdout.splitlines():
        name, _, folder = line.partition("\t")
        if name.strip().rstrip(":") == "Personal Lua Plugins" and folder.strip():
            return Path(folder.strip())
    raise LocalError(
        "`tshark -G folders` has no folder for personal Lua plugins: install a Wireshark with Lua, "
        "or install the script elsewhere: nupa dissector --install --to DIR"
    )


def install(folder: Path) -> Path:
    """Installs the dissector in *folder*, in place of an older one; returns its path."""
    target = folder / NAME
    _refuse_foreign(target)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".nupa-", dir=folder)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(script())
            Path(name).chmod(0o644)
            Path(name).replace(target)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise LocalError(f"{target} cannot be written: {error}") from error
    return target


def uninstall(folder: Path) -> Path | None:
    """Removes the dissector from *folder*; returns its path, None if it was not there."""
    target = folder / NAME
    _refuse_foreign(target)
    try:
        target.unlink()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LocalError(f"{target} cannot be removed: {error}") from error
    return target


def _refuse_foreign(target: Path) -> None:
    try:
        begin = target.read_bytes()[:1000].decode(errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise LocalError(f"{target} cannot be read: {error}") from error
    if _MARK not in begin:
        raise LocalError(f"{target} is not NUPA's dissector: move it away first")
