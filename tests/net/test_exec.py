# SPDX-License-Identifier: BSD-3-Clause
"""`nupa net exec` and `nupa shell`: what a program finds, how it ends."""

from __future__ import annotations

from .lab import Net, ip


def test_hosts_reach_each_other(net_by_user: Net) -> None:
    net_by_user.exec("host0", ["ping", "-c", "1", "-W", "5", ip(1)])
    net_by_user.exec("host1", ["ping", "-c", "1", "-W", "5", "fd4e:5550:4100::1"])
