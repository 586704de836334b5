# SPDX-License-Identifier: BSD-3-Clause
"""Users of the programs: ourselves, or uid 65534, which may not read our folders."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyroute2

import nupa

NOBODY = 65534
ANOTHER = 65533
_CHECK = "import nupa.cli.run.command, nupa.core.segment, pyroute2"
_LEFT_OUT = shutil.ignore_patterns(
    "site-packages", "dist-packages", "test", "idlelib", "ensurepip", "config-*"
)


@dataclass(frozen=True)
class User:
    """*prefix* runs a command as this user; *python* and *env* are an interpreter with nupa."""

    uid: int
    prefix: tuple[str, ...] = ()
    python: str = sys.executable
    env: Mapping[str, str] = field(default_factory=dict)

    def can_run_nupa(self) -> bool:
        command = [*self.prefix, self.python, "-P", "-c", _CHECK]
        env = {**os.environ, **self.env}
        return subprocess.run(command, env=env, cwd="/", capture_output=True).returncode == 0


def ourselves() -> User:
    return User(os.geteuid())


def nobody(folder: Path) -> User:
    """Returns uid 65534; for root only.  Files that it may not read are copied to *folder*."""
    prefix = _become(NOBODY)
    user = User(NOBODY, prefix)
    if user.can_run_nupa():
        return user
    python = copy_python(folder)
    env = {
        "PYTHONHOME": str(folder),
        "PYTHONPATH": str(copy_packages(folder)),
        "LD_LIBRARY_PATH": str(folder / "lib"),
    }
    make_readable(folder)
    user = User(NOBODY, prefix, str(python), env)
    assert user.can_run_nupa(), f"the copy of Python and nupa in {folder} does not run"
    return user


def another(user: User) -> User:
    """Returns uid 65533, with the interpreter of *user*; for root only."""
    return replace(user, uid=ANOTHER, prefix=_become(ANOTHER))


def _become(uid: int) -> tuple[str, ...]:
    # setpriv still has root's capabilities when it starts a program; env no longer has.
    return ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", "env")


def copy_python(folder: Path) -> Path:
    """Returns the interpreter below a virtual environment, its library and the standard library."""
    original = Path(sys.executable).resolve()
    python = folder / "bin" / original.name
    python.parent.mkdir()
    shutil.copy2(original, python)
    stdlib = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(stdlib, folder / "lib" / stdlib.name, ignore=_LEFT_OUT)
    shared = Path(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("LDLIBRARY"))
    for name in {shared.name, sysconfig.get_config_var("INSTSONAME")}:
        library = shared.with_name(str(name))
        if ".so" in library.name and library.exists():
            shutil.copy2(library, folder / "lib")
    return python


def copy_packages(folder: Path) -> Path:
    """Copies nupa, and the packages that it needs; returns their folder."""
    packages = folder / "packages"
    shutil.copytree(nupa.__path__[0], packages / "nupa", ignore=_LEFT_OUT)
    shutil.copytree(pyroute2.__path__[0], packages / "pyroute2", ignore=_LEFT_OUT)
    backend = importlib.util.find_spec("_cffi_backend")
    assert backend is not None
    assert backend.origin is not None
    shutil.copy2(backend.origin, packages)
    bundled = Path(backend.origin).with_name("cffi.libs")  # libffi, in wheels that bring it along
    if bundled.exists():
        shutil.copytree(bundled, packages / bundled.name)
    return packages


def make_readable(folder: Path) -> None:
    """Makes it readable to all users, as an installation is."""
    for path in (folder, *folder.rglob("*")):
        mode = path.stat().st_mode
        path.chmod(mode | (0o555 if path.is_dir() or mode & 0o100 else 0o444))
