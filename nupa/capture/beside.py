# SPDX-License-Identifier: BSD-3-Clause
"""A process that captures into a file while a program runs: `nupa run --capture`.

It is a child of the process that runs the program, and shares only the fabric with the program.  It
ends when its parent says so or dies; the file is complete in both cases.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from nupa.base.errors import FabricError, NupaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nupa.fabric import Fabric

_READY = b"ready"
_MESSAGE_BYTES = 4096
# Signals that end the program do not end the file, which ends after the program.
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)


class CaptureOptions(NamedTuple):
    """The file, levels and snap length of a capture."""

    file: str
    levels: Sequence[str]
    snap_bytes: int = 0


class Beside:
    """A context manager that captures what crosses *fabric*.

    Entering it raises the errors of nupa.capture.live.Live and FileSink as FabricError.  Leaving it
    waits until the file is complete; errors are printed, so that the program's status is unchanged.
    """

    def __init__(self, fabric: Fabric, options: CaptureOptions) -> None:
        self._fabric = fabric.name
        self._options = options
        self._pid = 0
        self._write_fd = -1

    def __enter__(self) -> Beside:
        stop_fd, self._write_fd = os.pipe2(os.O_CLOEXEC)
        answer_fd, said_fd = os.pipe2(os.O_CLOEXEC)
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._write_fd)
            _capture(self._fabric, self._options, stop_fd, said_fd)
        os.close(stop_fd)
        os.close(said_fd)
        said = os.read(answer_fd, _MESSAGE_BYTES)
        os.close(answer_fd)
        if said != _READY:
            self._end()
            why = said.decode(errors="replace") or "the capturing process died"
            raise FabricError(f"cannot capture: {why}")
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @property
    def pid(self) -> int:
        """The capturing process."""
        return self._pid

    def _end(self) -> None:
        os.close(self._write_fd)
        os.waitpid(self._pid, 0)


def _capture(fabric: str, options: CaptureOptions, stop_fd: int, said_fd: int) -> NoReturn:
    """Runs in the capturing process, to its end."""
    code = 1
    try:
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1):
            os.dup2(null, fd)
        code = _follow(fabric, options, stop_fd, said_fd)
    except NupaError as error:
        os.write(said_fd, str(error).encode()[:_MESSAGE_BYTES])
    except BaseException:  # nothing of the parent may run here
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def _follow(name: str, options: CaptureOptions, stop_fd: int, said_fd: int) -> int:
    from nupa.capture.live import Live
    from nupa.capture.loop import Capture
    from nupa.capture.sinks import FileSink
    from nupa.fabric import Fabric

    with (
        Fabric.open(name) as fabric,
        Live(fabric, ["any"], options.levels, options.snap_bytes) as live,
    ):
        sink = FileSink(options.file, interfaces=live.interfaces, snap_bytes=options.snap_bytes)
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
        print(f"nupa: {options.file}: {capture.lost} records were lost", file=sys.stderr)
    return 0
