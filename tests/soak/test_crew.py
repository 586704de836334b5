# SPDX-License-Identifier: BSD-3-Clause
"""Workers of a soak: their signals and their deaths."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
from pathlib import Path

from .crew import LINKS_MAX, SOURCES, Place, Role, Worker


def test_a_signal_to_a_dead_worker_leaves_its_death_to_the_director() -> None:
    sleep = shutil.which("sleep")
    assert sleep is not None
    role, place = Role(0, None, events=False, spared=False), Place("host0", "192.0.2.1")
    worker = Worker.start(Path(sleep), role, place, 600, os.environ, 0)
    try:
        worker.stop(1)
        worker.send_signal(signal.SIGKILL)
        assert select.select([worker.pidfd], [], [], 10)[0]
        worker.resume(2)
        assert worker.process.returncode is None
        assert select.select([worker.pidfd], [], [], 0)[0]
        assert not worker.stopped
    finally:
        worker.process.kill()
        worker.process.wait()
        worker.close()


def test_a_worker_has_room_for_both_ends_of_all_its_links() -> None:
    found = re.search(r"#define ENDS_MAX (\d+)u", (SOURCES / "soak.h").read_text())
    assert found is not None
    assert int(found[1]) > 2 * LINKS_MAX
