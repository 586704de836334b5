# SPDX-License-Identifier: BSD-3-Clause
"""`nupa demo --only fio`: RDMA against TCP over nupa_net0, as root and as an ordinary user."""

from __future__ import annotations

import json

from tests.net.lab import Net
from tests.programs.needs import needs


def test_rdma_and_tcp_are_compared_and_nothing_is_left(by_user: Net) -> None:
    needs("fio", "fio")
    found = json.loads(by_user.ok("demo", "--quick", "--only", "fio", "--json").stdout)
    assert found["notes"] == [note for note in found["notes"] if "busy with other work" in note]
    assert {(at["block_bytes"], at["depth"]) for at in found["contests"]} == {
        (4096, 32),
        (1 << 20, 32),
    }
    for contest in found["contests"]:
        for rate in (contest["rdma"], contest["tcp"]):
            blocks = rate["bytes_per_s"] / contest["block_bytes"]
            # fio counts bytes and blocks at slightly different moments.
            assert 0.7 < blocks / rate["operations_per_s"] < 1.4
    assert found["transfers"] == []
    assert by_user.processes() == []
    assert list(by_user.folder.iterdir()) == []
