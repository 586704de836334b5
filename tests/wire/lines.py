# SPDX-License-Identifier: BSD-3-Clause
"""Lines of JSON between the two ends of a program, over TCP.

They are bytes: a file of text forgets what it has read ahead when it is written to.
"""

from __future__ import annotations

import json
from typing import IO, Any


def say(talk: IO[bytes], words: Any) -> None:
    """Sends a line."""
    talk.write(json.dumps(words).encode() + b"\n")
    talk.flush()


def heard(talk: IO[bytes]) -> Any:
    """Waits for a line of the other end."""
    return json.loads(talk.readline())


def exchange(talk: IO[bytes], words: Any) -> Any:
    """Sends a line, and waits for that of the other end."""
    say(talk, words)
    return heard(talk)
