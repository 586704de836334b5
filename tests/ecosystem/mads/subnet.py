# SPDX-License-Identifier: BSD-3-Clause
"""A lab whose fabric is an InfiniBand subnet, the tools that speak MADs, and opensm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from nupa.programs.pair import Program, ProgramOutcome
from tests.ecosystem.lab import Lab
from tests.programs.needs import needs

UP_S = 40.0  #: What takes longer hangs.

#: LIDs 1 to 4 are hosts, 5 and 6 switches; the trunk is port 3 of both.
TOPOLOGY = """
link_layer = "infiniband"
[[switch]]
name = "switch0"
ports = 4
[[switch]]
name = "switch1"
ports = 4
[[host]]
name = "host"
count = 2
switch = "switch0"
[[host]]
name = "host"
first = 2
count = 2
switch = "switch1"
[[trunk]]
between = ["switch0", "switch1"]
ports = [3, 3]
"""
TRUNK = ("5", "3")


def guid(host: int) -> str:
    """Returns the GUID of a host's port."""
    return f"0x00000afffe{host + 1:06x}"


@dataclass(frozen=True)
class Subnet:
    """The default fabric of *lab*."""

    lab: Lab

    def diag(self, host: int, tool: str, *arguments: str) -> str:
        """Runs a program of infiniband-diags that must succeed; returns its output."""
        return self.try_diag(host, tool, *arguments).check().stdout

    def try_diag(self, host: int, tool: str, *arguments: str) -> ProgramOutcome:
        return self.lab.run(self.on(host, needs(tool, "infiniband-diags"), *arguments))

    def on(self, host: int, *command: str) -> list[str]:
        return self.lab.on(f"host{host}", *command)

    def counters(self, port: str) -> Mapping[str, int]:
        """Returns the counters of a port in `nupa show`."""
        (found,) = [each for each in self.lab.show()["ports"] if each["name"] == port]
        counters: dict[str, int] = found["counters"]
        return counters

    @contextmanager
    def opensm(
        self, host: int, *arguments: str, partitions: Sequence[str] = (), config: str = ""
    ) -> Iterator[Program]:
        """Yields a subnet manager on that host that has begun; it is killed at the end."""
        folder = self.lab.build / f"opensm{host}"
        folder.mkdir(exist_ok=True)
        (folder / "partitions.conf").write_text("\n".join(partitions))
        (folder / "opensm.conf").write_text(config)
        command = [
            needs("opensm", "opensm"),
            *("-F", str(folder / "opensm.conf"), "-f", "stdout", "-d", "2", "-D", "0x83"),
            *("-P", str(folder / "partitions.conf")),
            *arguments,
        ]
        env = {"OSM_CACHE_DIR": str(folder), "OSM_TMP_DIR": str(folder)}
        with self.lab.start(self.on(host, *command), env) as program:
            yield program

    def settle(self, partitions: Sequence[str] = ()) -> None:
        """Lets a subnet manager on host0 set the subnet up once."""
        with self.opensm(0, "-o", partitions=partitions) as manager:
            assert "SUBNET UP" in manager.wait(UP_S).check().stdout
