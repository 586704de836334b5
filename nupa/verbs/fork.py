# SPDX-License-Identifier: BSD-3-Clause
"""ibv_fork_init(3), which does nothing: registered memory is not pinned."""

from nupa.verbs.enums import ibv_fork_status

__all__ = ["fork_init", "is_fork_initialized"]


def fork_init() -> None:
    """Succeeds at any time."""


def is_fork_initialized() -> ibv_fork_status:
    return ibv_fork_status.IBV_FORK_UNNEEDED
