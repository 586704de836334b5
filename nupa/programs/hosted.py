# SPDX-License-Identifier: BSD-3-Clause
"""Command lines on a host of a fabric: in its network namespace, and over its RDMA device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nupa.programs.pair import NUPA, nupa_run


@dataclass(frozen=True)
class HostedCommand:
    """A host that has nupa_net0; *rdma*: programs use its nupa_rdma0, too."""

    fabric: str
    host: str
    address: str
    rdma: bool

    def command(self, argv: Sequence[str]) -> list[str]:
        inner = nupa_run(argv, fabric=self.fabric, host=self.host) if self.rdma else list(argv)
        return [*NUPA, "net", "exec", "--fabric", self.fabric, self.host, "--", *inner]
