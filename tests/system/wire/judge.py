# SPDX-License-Identifier: BSD-3-Clause
"""The table of the judge: programs between rdma_rxe and NUPA, or between rdma_rxe and itself."""

from __future__ import annotations

from collections.abc import Callable

from . import programs
from .ends import End

Talk = Callable[[End, End], object]


def _pingpong(kind: str, *options: str) -> Talk:
    return lambda server, client: programs.pingpong(server, client, kind, *options)


def _perftest(name: str, *options: str, rounds: int = 20, sizes: int = 1) -> Talk:
    return lambda server, client: programs.perftest(
        server, client, name, *options, rounds=rounds, sizes=sizes
    )


def _rping(size: int, rounds: int = 10) -> Talk:
    return lambda server, client: programs.rping(server, client, size, rounds)


def _ucmatose(*options: str) -> Talk:
    return lambda server, client: programs.ucmatose(server, client, *options)


def _qperf(*tests: str) -> Talk:
    return lambda server, client: programs.qperf(server, client, *tests)


def _ucx(*options: str, rendezvous: str = "auto") -> Talk:
    return lambda server, client: programs.ucx(server, client, *options, rendezvous=rendezvous)


#: perftest asks its own adapter for as many READs at a time as the other one has, by itself.
_READS = ("-o", "16")
_SIZES = len(programs.ALL_SIZES)
#: Few iterations: the guest is emulated.
TABLE: dict[str, Talk] = {
    "rc_pingpong 1": _pingpong("rc", "-s", "1"),
    "rc_pingpong 4099": _pingpong("rc", "-s", "4099"),
    "rc_pingpong events": _pingpong("rc", "-s", "1500", "-e"),
    "rc_pingpong mtu 256": _pingpong("rc", "-s", "5000", "-m", "256"),
    "uc_pingpong 4099": _pingpong("uc", "-s", "4099"),
    "ud_pingpong": _pingpong("ud", "-s", "999"),
    **{
        f"ib_{operation}_{kind} all": _perftest(
            f"ib_{operation}_{kind}",
            "-a",
            *(_READS if operation == "read" else ()),
            rounds=5,
            sizes=_SIZES,
        )
        for operation in ("send", "write", "read")
        for kind in ("lat", "bw")
    },
    "ib_atomic_lat": _perftest("ib_atomic_lat", *_READS),
    "ib_atomic_bw": _perftest("ib_atomic_bw", *_READS),
    "ib_atomic_lat cas": _perftest("ib_atomic_lat", "-A", "CMP_AND_SWAP", *_READS),
    "ib_send_lat UC": _perftest("ib_send_lat", "-c", "UC", "-s", "3000"),
    "ib_write_lat UC": _perftest("ib_write_lat", "-c", "UC", "-s", "3000"),
    "ib_send_lat UD": _perftest("ib_send_lat", "-c", "UD"),
    "ib_send_bw four QPs": _perftest("ib_send_bw", "-q", "4", "-s", "8192"),
    "ib_write_bw both ways": _perftest("ib_write_bw", "-b", "-s", "65536"),
    "rping 64": _rping(64),
    "rping 10000": _rping(10000),
    "ucmatose": _ucmatose(),
    "ucmatose four": _ucmatose("-c", "4"),
    "udaddy": programs.udaddy,
    "qperf rc": _qperf("rc_lat", "rc_bw", "rc_rdma_read_bw", "rc_rdma_write_lat"),
    "ucx tags": _ucx("-o", "read,write"),
    "ucx tags by WRITE": _ucx("-o", "read,write", rendezvous="put_zcopy"),
    "ucx active messages": _ucx("-A", "-o", "read,write"),
}
#: They meet by TCP at the address of RoCE.
AT_ONE_ADDRESS = ("qperf rc",)
