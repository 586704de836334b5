# SPDX-License-Identifier: BSD-3-Clause
# os.path: pathlib would cost each command 10 ms.
# ruff: noqa: PTH118
"""The admission policy of a fabric: a file beside the segment, or with a fabric of this process
alone."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from nupa.base import state_file
from nupa.fabric import registry
from nupa.topology.admission import Admission

if TYPE_CHECKING:
    from nupa.fabric.fabric import Fabric

_VERSION = 1


def policy_of(fabric: Fabric) -> Admission:
    """Returns the policy; one that admits all where there is none.

    FabricError: its file is damaged.
    """
    if not fabric.path:
        return fabric.own_admission or Admission()
    path = _path(fabric)
    remedy = f"`rm {path}` removes the policy, and all are admitted"
    return state_file.load(path, _VERSION, _parse, remedy) or Admission()


def set_policy(fabric: Fabric, policy: Admission) -> None:
    """Replaces the policy; newcomers are judged by it from now on.  FabricError: no room."""
    if fabric.path:
        state_file.store(_path(fabric), _VERSION, {"policy": policy})
    else:
        fabric.own_admission = policy


def _path(fabric: Fabric) -> str:
    head, name = os.path.split(fabric.path)
    return os.path.join(head, registry.policy_name(name))


def _parse(value: object) -> Admission:
    return state_file.field(Admission, value, "policy")  # type: ignore[no-any-return]
