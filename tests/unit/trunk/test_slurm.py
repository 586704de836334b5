# SPDX-License-Identifier: BSD-3-Clause
"""Slurm's variables, as srun(1) sets them for a task."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nupa.base.errors import LocalError
from nupa.trunk import slurm
from nupa.trunk.cluster import MACHINES_MAX

STEP = {
    "SLURM_PROCID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_JOB_ID": "42",
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NODELIST": "n[08-09]",
    "SLURM_NODELIST": "n[01-20]",
    "SLURMD_NODENAME": "n09",
}


def test_a_task_knows_its_node_and_the_session_of_its_step() -> None:
    step = slurm.find(STEP)
    assert step is not None
    assert step == (("n08", "n09"), 1, "n09", "slurm.42.3")
    assert [(each.name, each.address, each.port) for each in step.machines()] == [
        ("n08", "n08", 0),
        ("n09", "n09", 0),
    ]


def test_a_batch_script_and_a_plain_shell_are_no_tasks() -> None:
    assert slurm.find({}) is None
    assert slurm.find({"SLURM_JOB_ID": "42", "SLURM_NODELIST": "n[01-02]"}) is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"SLURM_NODEID": "2"}, "SLURM_NODEID is 2, and the step has 2 nodes"),
        ({"SLURM_NODEID": "-1"}, "SLURM_NODEID is '-1', not a number"),
        ({"SLURM_STEP_NUM_TASKS": "4"}, "4 tasks run on 2 nodes: a trunk is one task on each"),
        ({"SLURM_STEP_NODELIST": "n[08"}, "'n\\[08' is not a list of nodes"),
        ({"SLURM_STEP_NODELIST": "n[9-8]"}, "is not a list of nodes"),
        ({"SLURM_STEP_NODELIST": "n[[8]]"}, "is not a list of nodes"),
        ({"SLURM_STEP_NODELIST": "n8,,n9"}, "is not a list of nodes"),
        ({"SLURM_STEP_NODELIST": "n[a-b]"}, "is not a list of nodes"),
        ({"SLURM_STEP_NODELIST": "", "SLURM_NODELIST": ""}, "'' is not a list of nodes"),
        ({"SLURM_STEP_NODELIST": "n[1-999999999]"}, f"has more than {MACHINES_MAX}"),
        ({"SLURM_STEP_NODELIST": "[1-64][1-64][1-64][1-64]"}, f"has more than {MACHINES_MAX}"),
    ],
)
def test_wrong_variables_are_refused(change: dict[str, str], why: str) -> None:
    with pytest.raises(LocalError, match=why):
        slurm.find(STEP | change)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("login", ["login"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("r[1-2]n[1-2].site,x", ["r1n1.site", "r1n2.site", "r2n1.site", "r2n2.site", "x"]),
        (f"n[1-{MACHINES_MAX}]", [f"n{number}" for number in range(1, MACHINES_MAX + 1)]),
    ],
)
def test_lists_are_expanded_as_scontrol_does(text: str, nodes: list[str]) -> None:
    assert slurm.expand(text) == nodes


@given(st.text("n[]-,0123456789.", max_size=40))
def test_any_list_is_expanded_or_refused(text: str) -> None:
    try:
        nodes = slurm.expand(text)
    except LocalError:
        return
    assert 1 <= len(nodes) <= MACHINES_MAX
