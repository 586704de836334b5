# SPDX-License-Identifier: BSD-3-Clause
"""Sinks of captured packets: a pcapng file, or lines on a stream."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Protocol, TextIO

from nupa.capture.lines import lines, objects
from nupa.capture.view import View
from nupa.packet.pcapng.blocks import Interface
from nupa.packet.pcapng.reader import PcapngError, Writer

Key = tuple[str, int]  # of an interface: the port's name, the link type


class Sink(Protocol):
    def take(self, view: View, which: Sequence[int] | None) -> None:
        """Writes the packets of a batch at the places *which*; None: all."""

    def flush(self) -> None:
        """Makes packets visible to a reader of the output."""

    def close(self, seen: Counter[Key], lost: int) -> None:
        """Completes the output.  *seen*: packets by interface, with those that did not match."""


class FileSink:
    """Writes a pcapng file, or an open stream of bytes.

    *snap_bytes*: bytes kept of each packet.  *capture_filter*: noted in the file.
    PcapngError: it cannot be opened or written.
    """

    def __init__(
        self,
        file: str | os.PathLike[str] | IO[bytes],
        *,
        interfaces: Sequence[Interface] = (),
        snap_bytes: int = 0,
        capture_filter: str = "",
        comment: str = "",
    ) -> None:
        self._name = str(getattr(file, "name", file))
        self._snap_bytes = snap_bytes
        self._filter = capture_filter
        self._numbers: dict[Key, int] = {}
        self._of: tuple[object, list[int]] = (None, [])
        with self._errors():
            self._writer = Writer(file, comment=comment)
            self._start_ns = time.time_ns()
            for interface in interfaces:
                self._number(interface)
            self._writer.flush()

    def take(self, view: View, which: Sequence[int] | None) -> None:
        interfaces = view.batch.interfaces
        known, numbers = self._of
        with self._errors():
            if known is not interfaces or len(numbers) < len(interfaces):
                numbers = [self._number(interface) for interface in interfaces]
                self._of = (interfaces, numbers)
            self._writer.copy(view.batch, numbers, which)

    def _number(self, interface: Interface) -> int:
        key = (interface.name, interface.linktype)
        if key not in self._numbers:
            self._numbers[key] = self._writer.add_interface(
                interface.name,
                interface.linktype,
                snaplen=self._snap_bytes or interface.snaplen,
                capture_filter=self._filter,
            )
        return self._numbers[key]

    def flush(self) -> None:
        with self._errors():
            self._writer.flush()

    def close(self, seen: Counter[Key], lost: int) -> None:
        """Ends the file with statistics.

        Lost records are counted for the first interface: their ports are not known.
        """
        now_ns = time.time_ns()
        with self._errors():
            for (name, linktype), number in self._numbers.items():
                dropped = lost if number == 0 else 0
                self._writer.statistics(
                    number,
                    now_ns,
                    seen[name, linktype] + dropped,
                    dropped,
                    start_ns=self._start_ns,
                    end_ns=now_ns,
                    comment=f"{lost} records of all ports were lost" if dropped else "",
                )
            self._writer.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            with suppress(OSError):
                self._writer.close()
            raise PcapngError(
                f"{self._name}: cannot be written: {error.strerror}", error.errno or 0
            ) from error


class LineSink:
    """Writes a line for each packet to a text stream; *as_json*: an object."""

    def __init__(self, stream: TextIO, *, as_json: bool = False) -> None:
        self._stream = stream
        self._as_json = as_json

    def take(self, view: View, which: Sequence[int] | None) -> None:
        if self._as_json:
            self._stream.writelines(json.dumps(found) + "\n" for found in objects(view, which))
        else:
            self._stream.writelines(line + "\n" for line in lines(view, which))

    def flush(self) -> None:
        self._stream.flush()

    def close(self, seen: Counter[Key], lost: int) -> None:  # noqa: ARG002
        self._stream.flush()
