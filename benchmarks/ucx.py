# SPDX-License-Identifier: BSD-3-Clause
"""UCX beside NUPA: ucx_perftest of the PyPI package libucx-cu12."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from nupa.programs.pair import ProgramError, ProgramPair, free_port, nupa_run
from tests.common.namespaces import Namespace

Test = Literal["ucp_put_lat", "ucp_am_lat", "tag_lat", "ucp_put_bw", "ucp_am_bw", "tag_bw"]


@dataclass(frozen=True)
class Result:
    """The last line of ucx_perftest: over all iterations."""

    typical_us: float  #: 50th percentile, one way
    mb_per_s: float  #: MiB/s, in spite of its name in UCX
    messages_per_s: float

    @property
    def gb_per_s(self) -> float:
        return self.mb_per_s * 2**20 / 1e9


def folder() -> Path:
    """Returns the folder of libucx.  ProgramError: it is missing; the message says what to do."""
    spec = importlib.util.find_spec("libucx")
    if spec is None or not spec.submodule_search_locations:
        raise ProgramError("UCX is missing: pip install libucx-cu12 (it runs without CUDA)")
    return Path(spec.submodule_search_locations[0])


@dataclass(frozen=True)
class Place:
    """Where the server and the client run: the words before their commands, and UCX's settings."""

    enter: tuple[tuple[str, ...], tuple[str, ...]]
    server: str
    env: Mapping[str, str]
    #: The distribution's UCX, which speaks verbs; else the PyPI package's.
    distribution: bool = False


#: Here, over POSIX shared memory.
HERE = Place(((), ()), "127.0.0.1", {"UCX_TLS": "posix,self"})


#: By the distribution's UCX, with all that it has between processes: cma, too.
HERE_TOO = replace(HERE, env={"UCX_TLS": "shm,self"}, distribution=True)


def over_verbs(fabric: str, hosts: tuple[str, str]) -> Place:
    """Returns the place of two hosts of *fabric*, by verbs alone."""
    return Place(
        tuple(tuple(nupa_run([], fabric=fabric, host=host)) for host in hosts),  # type: ignore[arg-type]
        "127.0.0.1",
        {"UCX_TLS": "rc_v,self", "UCX_NET_DEVICES": "nupa_rdma0:1"},
        distribution=True,
    )


def by_tcp(server: Namespace, client: Namespace) -> Place:
    """Returns the place of two machines, over TCP on their cable."""
    return Place(
        (tuple(server.argv()), tuple(client.argv())),
        server.ipv4,
        {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"},
    )


def run(
    test: Test,
    size: int,
    iterations: str,
    cpus: tuple[int, int],
    *options: str,
    place: Place = HERE,
) -> Result:
    env = dict(place.env)
    program = "ucx_perftest"
    if not place.distribution:
        where = folder()
        program = str(where / "bin" / program)
        env["LD_LIBRARY_PATH"] = str(where / "lib")
    elif shutil.which(program) is None:
        raise ProgramError("UCX is missing: apt install ucx-utils")
    port = free_port()
    argv = [program, "-p", str(port)]
    what = ["-t", test, "-s", str(size), "-n", iterations, *options]
    pair = ProgramPair(
        [*place.enter[0], *argv],
        [*place.enter[1], *argv, place.server, *what],
        env=env,
        cpus=cpus,
        port=port,
        deadline_s=60.0,
    )
    return parse(pair.run().check().client.stdout)


def parse(text: str) -> Result:
    """Parses the overall figures.  ProgramError: there are none.

    >>> parse("Final:   1000000   0.167   0.170   0.171   44.75   44.75   5865515   5865516")
    Result(typical_us=0.167, mb_per_s=44.75, messages_per_s=5865516.0)
    >>> parse("Final:   2000000   0.098   155.13   20332902")
    Result(typical_us=0.098, mb_per_s=155.13, messages_per_s=20332902.0)
    """
    for line in reversed(text.splitlines()):
        if line.startswith("Final:"):
            values = [float(value) for value in line.split()[1:]]
            if len(values) == 8:
                return Result(values[1], values[5], values[7])
            if len(values) == 4:  # of several threads it prints the overall ones alone
                return Result(*values[1:])
    raise ProgramError(f"ucx_perftest printed no final figures: {text[-500:]!r}")
