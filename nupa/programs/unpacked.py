# SPDX-License-Identifier: BSD-3-Clause
"""Programs of a Debian release that is unpacked in a folder, run by its own loader and libraries.

So they run beside another release of the C library, without root and without a namespace.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import nupa
from nupa.base.errors import LocalError

#: Our libibverbs and librdmacm, which take the place of rdma-core's.
LIBRARIES = Path(nupa.__file__).parent / "lib"
_MULTIARCH = "lib/x86_64-linux-gnu"
_LOADER = "ld-linux-x86-64.so.2"


@dataclass(frozen=True)
class Unpacked:
    """The packages at *root*, with all that they need."""

    root: Path

    @property
    def libraries(self) -> list[Path]:
        """Its folders of libraries: before Debian 13, libc's is not below /usr."""
        found = (self.root / "usr" / _MULTIARCH, self.root / _MULTIARCH)
        return [path for path in found if path.is_dir()]

    def command(
        self, program: str, *arguments: str, ours: bool = True, more: Sequence[Path] = ()
    ) -> list[str]:
        """Returns the command line of one of its programs, over our libraries or its own.

        *more*: further folders of libraries.  LocalError: it has no such program.
        """
        folders = [*([LIBRARIES] if ours else []), *self.libraries, *more]
        words = ["--argv0", program, "--library-path", ":".join(map(str, folders))]
        return [str(self.library(_LOADER)), *words, str(self.program(program)), *arguments]

    def python(self, *arguments: str, ours: bool = True, preload: Path | None = None) -> list[str]:
        """Returns the command line of its Python, which has its pyverbs.

        *preload*: one of its own libraries, for this Python alone.
        """
        usr = self.root / "usr"
        version = max(path.name for path in (usr / "bin").glob("python3.*[0-9]"))
        env = [f"PYTHONHOME={usr}", f"PYTHONPATH={usr / 'lib/python3/dist-packages'}"]
        shell = ["sh", "-c", 'LD_PRELOAD="$0:$LD_PRELOAD" exec "$@"', str(preload)]
        command = self.command(version, "-B", *arguments, ours=ours)
        return ["env", *env, *(shell if preload else []), *command]

    def program(self, name: str) -> Path:
        """Returns the path of a program.  LocalError: there is none."""
        for folder in ("bin", "sbin"):
            if (path := self.root / "usr" / folder / name).exists():
                return path
        raise LocalError(f"{self.root} has no program {name}", errno.ENOENT)

    def library(self, name: str) -> Path:
        """Returns the path of a library.  LocalError: there is none."""
        for folder in self.libraries:
            if (path := folder / name).exists():
                return path
        raise LocalError(f"{self.root} has no library {name}", errno.ENOENT)
