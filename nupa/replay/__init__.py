# SPDX-License-Identifier: BSD-3-Clause
"""Plays a capture's requests against a fresh fabric.  Knows captures and verbs; never options.

    from nupa.replay import replay
    replay("failure.pcapng").raise_for_differences()

The parts in their order: `packets` reads the file, `flows` pairs queue pairs, `messages` makes
requests with their answers.  `memory` finds the regions that they need, `stage` sets up a fabric,
`play` plays the requests, `report` has the differences.
"""

from nupa.replay.packets import ReplayError
from nupa.replay.report import Difference, ReplayDifferenceError, Report
from nupa.replay.run import replay

__all__ = ["Difference", "ReplayDifferenceError", "ReplayError", "Report", "replay"]
