# SPDX-License-Identifier: BSD-3-Clause
"""Short recordings of a fabric, and the transfers in them: the data of `nupa trace`."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import finalize

from nupa.base.errors import LocalError

if TYPE_CHECKING:
    from nupa.diagram.find.index import Index

#: Limits of a recording; of transfers listed, and records of one that are drawn.
SECONDS, PACKETS_MAX, TRANSFERS_MAX, ROWS_MAX = 1.0, 50_000, 500, 400
_SNAP_BYTES = 256
_LEVELS = ("tlp", "queue", "transport", "cache")


class Recordings:
    """The latest recording of the fabric *name*, in a file of a folder of its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = Lock()
        self._folder: Path | None = None
        self._index: Index | None = None
        self._number = 0
        self._lost = 0
        self._stopper: int | None = None

    def record(self, seconds: float = SECONDS) -> dict[str, Any]:
        """Records for *seconds*, or until PACKETS_MAX; returns the transfers, as latest() does.

        LocalError: a recording is being made.
        """
        if not self._lock.acquire(blocking=False):
            raise LocalError("a recording is being made: ask again when it is done")
        try:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="nupa-serve-"))
                finalize(self, shutil.rmtree, self._folder, True)  # at exit, too
            self._record(self._folder / f"{self._number + 1}.pcapng", seconds)
        finally:
            self._lock.release()
        return self.latest()

    def _record(self, path: Path, seconds: float) -> None:
        from nupa.capture.live import Live
        from nupa.capture.loop import Capture
        from nupa.capture.sinks import FileSink
        from nupa.diagram.find.index import read_index
        from nupa.fabric import Fabric

        reader, writer = os.pipe()
        try:
            with (
                Fabric.open(self._name) as fabric,
                Live(fabric, ["any"], _LEVELS, _SNAP_BYTES) as live,
            ):
                sink = FileSink(path, interfaces=live.interfaces, snap_bytes=_SNAP_BYTES)
                capture = Capture(sink, None, PACKETS_MAX)
                self._stopper = writer
                capture.from_fabric(live, reader, deadline=time.monotonic() + seconds)
                capture.close()
        finally:
            self._stopper = None
            os.close(reader)
            os.close(writer)
        before, self._index = self._index, read_index(path)
        self._number += 1
        self._lost = capture.lost
        if before is not None:
            Path(before.path).unlink(missing_ok=True)

    def latest(self) -> dict[str, Any]:
        """Returns the transfers of the latest recording, the first TRANSFERS_MAX; number 0: none
        was made."""
        index = self._index
        if index is None:
            return {"number": 0, "packets": 0, "lost": 0, "total": 0, "transfers": []}
        shown = index.transfers[:TRANSFERS_MAX]
        return {
            "number": self._number,
            "packets": index.packets,
            "lost": self._lost,
            "total": len(index.transfers),
            "start_ns": index.first_ns,
            "transfers": [_listed(one, index.first_ns) for one in shown],
        }

    def diagram(self, number: int) -> dict[str, Any]:
        """Returns the diagram of transfer *number*.  LocalError: there is none."""
        from nupa.diagram.draw.diagram import read_diagram

        index = self._index
        if index is None or not 1 <= number <= len(index.transfers):
            raise LocalError(f"the latest recording has no transfer {number}: record again")
        diagram = read_diagram(index, index.transfers[number - 1])
        found = diagram.to_json()
        rows = found["rows"]
        return found | {
            "file": None,
            "title": diagram.title,
            "subtitle": diagram.subtitle,
            "footnotes": diagram.footnotes,
            "rows": rows[:ROWS_MAX],
            "rows_left_out": max(len(rows) - ROWS_MAX, 0),
        }

    def close(self) -> None:
        """Ends a recording that is being made, and removes the files."""
        stopper = self._stopper
        if stopper is not None:
            os.write(stopper, b"x")
        with self._lock:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)


def _listed(transfer: Any, first_ns: int) -> dict[str, Any]:
    """Returns a transfer as its list has it: times in ns from the recording's first packet."""
    return {
        "number": transfer.number,
        "transfer": f"{transfer.id:#x}" if transfer.id else None,
        "what": transfer.what,
        "from": transfer.source_text,
        "to": transfer.target_text,
        "bytes": transfer.length,
        "start_ns": transfer.start_ns - first_ns,
        "duration_ns": transfer.duration_ns,
        "records": transfer.records,
        "flags": transfer.flag_names,
    }
