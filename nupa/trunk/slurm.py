# SPDX-License-Identifier: BSD-3-Clause
"""The variables by which Slurm's srun(1) tells a task its nodes.

>>> expand("rack[1-2]n[08-10],login")[:4]
['rack1n08', 'rack1n09', 'rack1n10', 'rack2n08']
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from typing import NamedTuple

from nupa.base.errors import LocalError
from nupa.trunk.cluster import MACHINES_MAX, Machine

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_PART = re.compile(r"([^\[\],]*)(?:\[([^\]]*)\])?")
_LIST_BYTES_MAX = 1 << 16


class SlurmStep(NamedTuple):
    """A task of a job step.  *node*: the index of its node; *session*: the step's own word."""

    nodes: tuple[str, ...]
    node: int
    name: str
    session: str

    def machines(self) -> tuple[Machine, ...]:
        """Returns a machine for each node, with no hosts and no port yet."""
        return tuple(Machine(node, node, port=0) for node in self.nodes)


def find(env: Mapping[str, str]) -> SlurmStep | None:
    """Returns the step that this process is a task of; None: it is no task of srun.

    LocalError: a variable is wrong, or there are several tasks on a node.
    """
    if "SLURM_PROCID" not in env or "SLURM_NODEID" not in env:
        return None
    nodes = expand(env.get("SLURM_STEP_NODELIST") or env.get("SLURM_NODELIST") or "")
    node = _number(env, "SLURM_NODEID")
    if node >= len(nodes):
        raise LocalError(
            f"SLURM_NODEID is {node}, and the step has {len(nodes)} nodes: start it by srun",
            errno.EINVAL,
        )
    tasks = _number(env, "SLURM_STEP_NUM_TASKS", str(len(nodes)))
    if tasks != len(nodes):
        raise LocalError(
            f"{tasks} tasks run on {len(nodes)} nodes: a trunk is one task on each, "
            f"srun --ntasks-per-node=1",
            errno.EINVAL,
        )
    job, step = (env.get(name, "0") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    name = env.get("SLURMD_NODENAME") or nodes[node]
    return SlurmStep(tuple(nodes), node, name, f"slurm.{job}.{step}")


def _number(env: Mapping[str, str], key: str, default: str = "") -> int:
    value = env.get(key, default)
    if not value.isdecimal() or len(value) > 9:
        raise LocalError(f"{key} is {value!r}, not a number: start it by srun", errno.EINVAL)
    return int(value)


def expand(text: str) -> list[str]:
    """Expands a list of nodes as `scontrol show hostnames` does.  LocalError: not one."""
    found: list[str] = []
    for word in _split(text):
        found += _expand_word(word, text)
        if len(found) > MACHINES_MAX:
            raise LocalError(
                f"the list of nodes {_short(text)} has more than {MACHINES_MAX}: a cluster has at "
                f"most so many machines",
                errno.EINVAL,
            )
    return found


def _split(text: str) -> list[str]:
    """Splits at the commas outside of brackets."""
    words, depth = [""], 0
    if len(text) > _LIST_BYTES_MAX:
        raise _wrong(text)
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise _wrong(text)
        if letter == "," and depth == 0:
            words.append("")
        else:
            words[-1] += letter
    if depth or not all(words):
        raise _wrong(text)
    return words


def _expand_word(word: str, text: str) -> list[str]:
    found = [""]
    at = 0
    while at < len(word):
        match = _PART.match(word, at)
        if match is None or match.end() == at:
            raise _wrong(text)
        at = match.end()
        numbers = [""] if match[2] is None else _numbers(match[2], text)
        found = [before + match[1] + number for before in found for number in numbers]
        if len(found) > MACHINES_MAX:
            break  # the caller refuses it
    return found


def _numbers(ranges: str, text: str) -> list[str]:
    found: list[str] = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise _wrong(text)
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise _wrong(text)
        last = min(last, first + MACHINES_MAX)  # one past the limit is refused by the caller
        found += [f"{number:0{len(match[1])}}" for number in range(first, last + 1)]
    return found


def _wrong(text: str) -> LocalError:
    return LocalError(
        f"{_short(text)} is not a list of nodes like n[01-04],login: start it by srun",
        errno.EINVAL,
    )


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
