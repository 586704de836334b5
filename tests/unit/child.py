# SPDX-License-Identifier: BSD-3-Clause
"""A child of this process that runs a function of the test, with no other thread beside it."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable


def failure_in_child(run: Callable[[], None]) -> str:
    """Returns the traceback of *run* in a forked child, or "" if it ended without one.

    The child ends with this call, however the call ends.
    """
    said, words = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of 3.12: there are threads here
        child = os.fork()
    if child == 0:
        try:
            run()
        except BaseException:
            os.write(words, traceback.format_exc().encode(errors="replace"))
        else:
            os.write(words, b"\n")
        finally:
            os._exit(0)
    os.close(words)
    try:
        with open(said, encoding="utf-8") as file:  # noqa: PTH123 -- a descriptor
            return (file.read() or "the child died").strip()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
