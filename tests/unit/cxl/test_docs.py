# SPDX-License-Identifier: BSD-3-Clause
"""docs/cxl.md: its commands and examples run as they stand, and print the expected output."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from nupa.cli.fm.table import COMMANDS as FM_COMMANDS
from nupa.cxl.site import served

PAGE = (Path(__file__).parents[3] / "docs" / "cxl.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)[0].splitlines()
#: By a line that only one example has.
OUTPUT = {
    'tag="mailbox"': "0 7\nb'from host0' b'store' host0 ('host1',)\n",
    "pool.set_quota(": "122\nTrue b'\\xff\\xff' 0\n",
    "fabric.switch.host(0)": "['03:00.0', '04:00.0'] 512 b'the first 24 bytes are here'\n",
    "region.bus.raises": "[(0, 67108864)] b'dynamic'\n[] b'\\xff\\xff'\n",
    "fm.bind(1, 0, 2)": ("INVALID_INPUT ['virtual switch 0, vPPB 0: bound to port 2']\n"),
    "use_cache(": "b'dirty' MemRd:1 BISnpData:0 MemWr:0 Cmp:0 BIRspS:0 Cmp-S:1 MemData:1\n",
    "HostAgent(": "b'into host memory'\n"
    "D2H Req RdOwn 0x40 gpu\nH2D Rsp GO E 0x40 gpu\nH2D Data 0x40 gpu\n"
    "H2D Req SnpData 0x40 gpu\nD2H Rsp RspSFwdM 0x40 gpu\nD2H Data 0x40 gpu\n",
    '["cache"]': "0 D2H Req RdOwn I to I\n0 H2D Rsp GO I to E\n0 H2D Data E to E\n"
    "1 D2H Req RdShared I to I\n0 H2D Req SnpData M to M\n0 D2H Rsp RspSFwdM M to S\n"
    "0 D2H Data S to S\n1 H2D Rsp GO I to S\n1 H2D Data S to S\n",
    "pod.step()": "False True\n" + 3 * "True False\n",
}


@pytest.mark.parametrize("line", OUTPUT)
def test_an_example_of_the_page_runs(line: str) -> None:
    (example,) = [each for each in EXAMPLES if line in each]
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (result.returncode, result.stderr, result.stdout) == (0, "", OUTPUT[line])


def test_the_tour_of_ten_commands_runs(tmp_path: Path) -> None:
    env = {**os.environ, "NUPA_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    servers, printed, rest = [], [], []
    assert len(COMMANDS) == 10
    try:
        for line in COMMANDS:
            program, *words = shlex.split(line, comments=True)
            assert program == "nupa"
            argv = [sys.executable, "-m", "nupa.cli", *words]
            if words[-1] == "&":
                server = subprocess.Popen(
                    argv[:-1],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,  # nothing about a pool that is too small
                    text=True,
                    env=env,
                )
                servers.append(server)
                assert server.stdout is not None
                printed.append(server.stdout.readline())  # it listens
                continue
            result = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=env)
            assert (line, result.returncode, result.stderr) == (line, 0, "")
            printed.append(result.stdout)
    finally:
        for server in servers:
            server.terminate()
            assert server.wait(30) == 0
            assert server.stdout is not None
            with server.stdout:
                rest.append(server.stdout.read())
        down = [sys.executable, "-m", "nupa.cli", "down"]
        assert subprocess.run(down, capture_output=True, timeout=60, env=env).returncode == 0
    assert [bool(each) for each in printed] == [1, 1, 1, 0, 0, 0, 1, 0, 1, 1]
    assert rest == ["" for _ in servers]
    assert "MLD" in printed[2]
    assert "0   512 MiB" in printed[6]
    assert "decoder0.commit " in printed[9]
    assert list(tmp_path.iterdir()) == []


def test_the_page_lists_the_commands_that_are_served() -> None:
    """`python -m nupa.cxl.site.served` prints the table anew."""
    lines = PAGE.splitlines()
    start = lines.index("<!-- python -m nupa.cxl.site.served -->") + 1
    assert lines[start : lines.index("", start)] == served.markdown()


def test_the_page_names_the_commands_of_the_command_line() -> None:
    """The page has each beside its opcodes, as in nupa/cli/fm/table.py."""
    named: set[str] = set()
    for first, last, cell in re.findall(
        r"^\| (?:(\w{4})–(\w{4}) [^|]*|any[^|]*) \| ([^|]*) \|", PAGE, re.MULTILINE
    ):
        words = [
            word if word[0] != "-" else f"dcd{word}" for word in re.findall(r"`([\w-]+)", cell)
        ]
        opcodes = range(int(first, 16), int(last, 16) + 1) if first else range(0)
        wanted = {each.name for each in FM_COMMANDS if {*each.opcodes} & {*opcodes}}
        assert wanted <= {*words}
        named |= {*words}
    assert named == {each.name for each in FM_COMMANDS}


def test_those_who_serve_a_command_agree_on_its_effects() -> None:
    tables = served.served().values()
    for opcode in {opcode for commands in tables for opcode in commands}:
        effects = {commands[opcode].effects for commands in tables if opcode in commands}
        assert len(effects) == 1, f"{opcode:04x}"


def test_settings_that_limit_nothing_have_no_effect_entry() -> None:
    commands = served.served()["MLD"]
    assert [commands[opcode].effects for opcode in (0x5404, 0x5407, 0x5409)] == [0, 0, 0]


def test_the_page_is_short() -> None:
    assert len(PAGE.splitlines()) - len(served.markdown()) <= 350
