# SPDX-License-Identifier: BSD-3-Clause
"""nupa.core.mover: the names and numbers are the engine's."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nupa._engine import ffi
from nupa.cli import build_parser
from nupa.core.mover import BETWEEN_PROCESSES, Mover
from nupa.fabric import LocalError


def test_the_movers_are_those_of_the_engine() -> None:
    engine = dict(ffi.typeof("enum nupa_mover").relements)
    assert engine.pop("NUPA_MOVER_NONE") == 0
    assert {f"NUPA_MOVER_{mover.name}": int(mover) for mover in Mover} == engine


@pytest.mark.parametrize("mover", Mover, ids=str)
def test_a_mover_is_found_by_its_name_and_says_what_it_does(mover: Mover) -> None:
    assert Mover.parse(str(mover)) is mover
    assert f"{mover}" == str(mover) == mover.name.lower()
    assert mover.what
    assert "\n" not in mover.what


@pytest.mark.parametrize("text", ["pigeon", "", "CMA", "none", "3"])
def test_a_name_that_is_none_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(LocalError) as caught:
        Mover.parse(text)
    assert str(caught.value) == (
        f"there is no mover {text!r}: choose one of local, pool, shared, cma, relay"
    )


@pytest.mark.parametrize(
    ("command", "movers"),
    [
        (["run"], tuple(Mover)),
        (["demo"], BETWEEN_PROCESSES),
        (["perf", "write", "lat"], BETWEEN_PROCESSES),
    ],
    ids=["run", "demo", "perf"],
)
def test_each_command_takes_the_movers_that_can_work_for_it(
    command: list[str], movers: tuple[Mover, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for mover in Mover:
        argv = [*command, "--mover", str(mover)]
        if mover in movers:
            assert build_parser(argv).parse_args(argv).mover == str(mover)
        else:
            with pytest.raises(SystemExit):
                build_parser(argv).parse_args(argv)
            assert f"invalid choice: '{mover}'" in capsys.readouterr().err


def test_reading_a_command_line_loads_no_engine() -> None:
    code = "import sys, nupa.cli; nupa.cli.build_parser(['run']); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert "nupa.core.mover" in loaded
    assert "nupa._engine" not in loaded
