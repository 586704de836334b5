# SPDX-License-Identifier: BSD-3-Clause
"""Reads a work from a file or folder, by what it is called."""

from __future__ import annotations

from pathlib import Path

from nupa.model.bounded import read_text
from nupa.model.errors import ModelError
from nupa.model.formats import chakra, goal
from nupa.model.profile.profile import load
from nupa.model.recording.layout import SUFFIX
from nupa.model.recording.recording import read as read_recording
from nupa.model.work.recording import schedule_of
from nupa.model.work.schedule import Schedule

TEXT_BYTES_MAX = 256 << 20
_CAPTURES = (".pcapng", ".pcap")


def read(path: str) -> Schedule:
    """Returns the schedule in *path*: a recording, a capture, a trace or GOAL text.

    ModelError: it is none of these, or invalid.
    """
    place = Path(path)
    if place.is_dir() or place.suffix == SUFFIX:
        return _recording(path)
    if place.suffix in _CAPTURES:
        from nupa.model.formats import capture

        return capture.read(path)
    if place.suffix == ".goal":
        return goal.read(read_text(place, TEXT_BYTES_MAX), place.name)
    if place.suffix == ".et" or Path(f"{path}.0.et").exists():
        return chakra.read(path)
    raise ModelError(
        f"{path}: a folder of `nupa run --record`, or a file that ends with "
        f"{', '.join(_CAPTURES)}, .et or .goal, is read"
    )


def _recording(path: str) -> Schedule:
    recording = read_recording(path)
    schedule = schedule_of(recording)
    try:
        here = load(f"here-{schedule.mover}")
    except ModelError:
        return schedule  # not calibrated: what its program needs to see a write counts as its own
    return schedule_of(recording, here.get("polled", here.get("completion")))
