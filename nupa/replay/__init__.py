# SPDX-License-Identifier: BSD-3-Clause
"""Plays a capture's requests against a fresh fabric, and compares the responses.

Knows captures and verbs; never how packets were captured, and nothing of command lines.

    from nupa.replay import replay
    replay("failure.pcapng").raise_for_differences()

packets (what the file has) -> flows (who talks to whom) -> messages (requests and their answers) ->
memory (what they need) -> stage (a fabric that has it) -> play -> report.
"""

from nupa.replay.packets import ReplayError
from nupa.replay.report import Difference, ReplayDifferenceError, Report
from nupa.replay.run import replay

__all__ = ["Difference", "ReplayDifferenceError", "ReplayError", "Report", "replay"]
