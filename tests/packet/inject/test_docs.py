# SPDX-License-Identifier: BSD-3-Clause
"""docs/packet.md on injection: its example runs and prints what it says; the enums are C's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from nupa._engine import ffi
from nupa.core.inject import Outcome, Reason

PAGE = Path(__file__).parents[3] / "docs" / "packet.md"


def test_the_example_of_the_page_runs() -> None:
    section = PAGE.read_text().split("## Injecting packets\n")[1].split("\n## ")[0]
    (example,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    (output,) = re.findall(r"```\n(executed .*?)```", section, re.DOTALL)
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (result.returncode, result.stdout) == (0, output)
    # One packet of the page has a key that does not exist: the responder says so, once.
    (line,) = result.stderr.splitlines()
    assert re.fullmatch(
        r"nupa: QP .* with rkey 0xbad .*: this process has no region or window with this rkey", line
    )


def test_outcomes_and_reasons_are_those_of_the_engine() -> None:
    for cls, name in ((Outcome, "nupa_inject_verdict"), (Reason, "nupa_inject_reason")):
        known = {
            text.removeprefix("NUPA_INJECT_"): value
            for text, value in ffi.typeof(f"enum {name}").relements.items()
        }
        known.pop("REASONS", None)
        assert {member.name: int(member) for member in cls} == known
    assert len({reason.what for reason in Reason}) == len(Reason)
