# SPDX-License-Identifier: BSD-3-Clause
"""docs/tenants.md: its Python runs, its policy is read, its table of states is the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nupa.fabric.host import STATES
from nupa.topology.tenants_file import load_admission

PAGE = (Path(__file__).parents[4] / "docs" / "tenants.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_python_runs_and_prints_what_it_says(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(PYTHON[number], "docs/tenants.md", "exec"), {})
    said = re.findall(r"print\(.*\)  # (.*)", PYTHON[number])
    assert said == capsys.readouterr().out.splitlines()[: len(said)]


def test_the_policy_is_read(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "policy.toml").write_text(text)
    policy = load_admission(tmp_path / "policy.toml")
    assert [rule.name for rule in policy.rules] == ["servers", "accelerators"]


def test_the_table_has_each_state() -> None:
    section = PAGE.split("\n| state |")[1].split("\n\n")[0]
    assert sorted(re.findall(r"^\| (\w+) \|", section, re.MULTILINE)) == sorted(STATES)
