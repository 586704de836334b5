# SPDX-License-Identifier: BSD-3-Clause
"""`nupa demo storage --quick`: Ceph and tgt of Debian 12 over RDMA and over TCP."""

from __future__ import annotations

import json

import pytest

from nupa.programs.pair import NUPA
from tests.ecosystem.lab import Lab

#: The first run downloads the packages.
RUN_S = 400.0


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(450)
def test_ceph_and_iscsi_run_over_rdma_and_tcp(lab: Lab) -> None:
    outcome = lab.run([*NUPA, "demo", "storage", "--quick", "--json"], deadline_s=RUN_S)
    assert outcome.ok, outcome.describe()
    ceph, iscsi = json.loads(outcome.stdout)["reports"]
    for report, directions in ((ceph, {"read", "write"}), (iscsi, {"read"})):
        assert report["failures"] == []
        measured = {(each["transport"], each["direction"]) for each in report["results"]}
        assert measured == {(way, each) for way in ("rdma", "tcp") for each in directions}
        assert all(each["operations_per_s"] > 0 for each in report["results"])


@pytest.mark.parametrize("option", ["--only=fio", "--plot=x.png", "--mover=cma"])
def test_an_option_of_the_other_demo_is_refused(lab: Lab, option: str) -> None:
    outcome = lab.run([*NUPA, "demo", "storage", option])
    assert outcome.returncode == 2
    assert f"{option.partition('=')[0]} does not apply" in outcome.stderr
