# SPDX-License-Identifier: BSD-3-Clause
"""The probe of network interfaces."""

from __future__ import annotations

import os
from contextlib import closing

from nupa.netdev import address, interface, namespace
from nupa.netdev.keeper import Keeper

_SPEC = interface.InterfaceConfig("02:00:0a:00:00:01", "10.0.0.1", address.MTU_MAX_BYTES, 1)


def probe() -> str:
    """Makes an interface in a namespace and removes both.

    Returns why programs in it would see another namespace's /sys; empty: they see their own.
    NupaError: interfaces cannot be made; the message says what to do.
    """
    interface.check_device()
    with closing(Keeper("probe", 1)) as keeper:
        return namespace.run_in(keeper.netns[0], _try)[0]


def _try() -> tuple[str, list[int]]:
    _, fds = interface.ensure(_SPEC, own=True, known=False, attach=True)
    for fd in fds:
        os.close(fd)
    try:
        namespace.own_mounts()
        namespace.show_own_sys()
    except OSError as error:
        return error.strerror or str(error), []
    return "", []
