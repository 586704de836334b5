# SPDX-License-Identifier: BSD-3-Clause
"""A process that captures into a file while a program runs: `nupa run --capture`.

It is a child of the one that runs the program, and shares nothing with the program but the fabric.
It ends when its parent says so or is no more, whichever way: the file is whole in each case.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from nupa.base.errors import FabricError, NupaError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from nupa.fabric import Fabric

_READY = b"ready"
_MESSAGE_BYTES = 4096
# What ends the program is no reason to end the file: it ends after the program.
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)


class Wish(NamedTuple):
    """What is captured, and where to."""

    file: str
    levels: Sequence[str]
    snap_bytes: int = 0


class Beside:
    """A context manager: within it all that crosses *fabric* is captured.

    Entering it fails as nupa.capture.live.Live and FileSink do.  Leaving it waits until the file is
    complete; what went wrong with it is said on stderr, as the program's end is not to change.
    """

    def __init__(self, fabric: Fabric, wish: Wish) -> None:
        self._fabric = fabric.name
        self._wish = wish
        self._pid = 0
        self._write_fd = -1

    def __enter__(self) -> Beside:
        stop_fd, self._write_fd = os.pipe2(os.O_CLOEXEC)
        answer_fd, said_fd = os.pipe2(os.O_CLOEXEC)
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._write_fd)
            _capture(self._fabric, self._wish, stop_fd, said_fd)
        os.close(stop_fd)
        os.close(said_fd)
        said = os.read(answer_fd, _MESSAGE_BYTES)
        os.close(answer_fd)
        if said != _READY:
            self._end()
            why = said.decode(errors="replace") or "the process that was to capture died"
            raise FabricError(f"cannot capture: {why}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    @property
    def pid(self) -> int:
        """Of the process that captures."""
        return self._pid

    def _end(self) -> None:
        os.close(self._write_fd)
        os.waitpid(self._pid, 0)


def _capture(fabric: str, wish: Wish, stop_fd: int, said_fd: int) -> NoReturn:
    """The process that captures: to its end."""
    code = 1
    try:
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1):
            os.dup2(null, fd)
        code = _follow(fabric, wish, stop_fd, said_fd)
    except NupaError as error:
        os.write(said_fd, str(error).encode()[:_MESSAGE_BYTES])
    except BaseException:  # the parent's handlers are none of ours
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def _follow(name: str, wish: Wish, stop_fd: int, said_fd: int) -> int:
    from nupa.capture.live import Live
    from nupa.capture.loop import Capture
    from nupa.capture.sinks import FileSink
    from nupa.fabric import Fabric

    with Fabric.open(name) as fabric, Live(fabric, ["any"], wish.levels, wish.snap_bytes) as live:
        sink = FileSink(wish.file, interfaces=live.interfaces, snap_bytes=wish.snap_bytes)
        capture = Capture(sink)
        os.write(said_fd, _READY)
        os.close(said_fd)
        try:
            capture.from_fabric(live, stop_fd)
            capture.close()
        except (NupaError, BrokenPipeError) as error:
            print(f"nupa: the capture ended too early: {error}", file=sys.stderr)
            return 1
    if capture.lost:
        print(f"nupa: {wish.file}: {capture.lost} records were lost", file=sys.stderr)
    return 0
