# SPDX-License-Identifier: BSD-3-Clause
"""Records tests/data/rxe_eth0.pcap and rxe_any.pcap: RoCE v2 of the kernel's rdma_rxe, from the
first of two guests of `nupa vm up`.

    .venv/bin/python tests/data/record_rxe.py [FOLDER]

    rxe_eth0.pcap   `tcpdump -i eth0`: Ethernet, µs.  SEND over IPv4 and IPv6, UD, WRITE,
                    READ, FETCH AND ADD; messages of more than one packet, and with padding
    rxe_any.pcap    `tcpdump -i any --time-stamp-precision=nano`: SLL2, ns.  rping and udaddy, with
                    the messages of their RDMA CM

The script needs tcpdump, perftest, ibverbs-utils, rdmacm-utils, ibverbs-providers and iproute2, and
runs for a minute.  `make rxe-captures` starts it.  The files are read by
tests/packet/formats/test_rxe_captures.py.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from nupa.vm.pair import Pair

MACHINE = "record-rxe"
TIMEOUT_S = 240
SETTLE_S = 2.0  # so long nothing comes after the last packet
#: A server, a client, and the TCP port by which they meet.
Meeting = tuple[Sequence[str], Sequence[str], int]
NUPA = str(Path(sys.executable).parent / "nupa")
ROCE = "udp port 4791"

# GID 0 of rxe0 is of the IPv6 address of eth0, GID 1 of the IPv4 address.
SET_UP = """\
modprobe rdma_rxe && modprobe ib_uverbs && modprobe rdma_ucm || exit
[ -e /sys/class/infiniband/rxe0 ] || rdma link add rxe0 type rxe netdev eth0
"""

# perftest makes no fewer than 5 iterations.  Sizes are not multiples of 4 where BTH has to pad.
ON_ETH0: tuple[tuple[str, ...], ...] = (
    ("ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-s", "1101", "-n", "2"),
    ("ibv_rc_pingpong", "-d", "rxe0", "-g", "0", "-s", "101", "-n", "2"),
    ("ibv_ud_pingpong", "-d", "rxe0", "-g", "1", "-s", "61", "-n", "2"),
    ("ib_write_lat", "-d", "rxe0", "-x", "1", "-s", "1027", "-n", "5"),
    ("ib_read_lat", "-d", "rxe0", "-x", "1", "-s", "1026", "-n", "5"),
    ("ib_atomic_lat", "-d", "rxe0", "-x", "1", "-n", "5"),
)


def nupa_vm(*words: str) -> None:
    subprocess.run([NUPA, "vm", *words], check=True, timeout=TIMEOUT_S)


class Recorder:
    """Two guests with an rxe0 each, of which the first listens."""

    def __init__(self) -> None:
        nupa_vm("up", "--name", MACHINE, "--kind", "ivshmem", "--mem", "64M")
        self.pair = Pair(MACHINE, ("host0", "host1"), TIMEOUT_S, lambda _: None)

    def close(self) -> None:
        nupa_vm("down", "--force", MACHINE)

    def set_up(self) -> None:
        for host in self.pair.hosts:
            self.pair.run(host, ["sh", "-c", SET_UP])

    def meet(self, server: Sequence[str], client: Sequence[str], port: int) -> None:
        """Runs both programs, which find each other by TCP *port*; 0: by the RDMA CM."""
        if port:
            self.pair.measure(server, client, port, nupa=False)
            return
        listener = subprocess.Popen(self.pair.command(self.pair.hosts[0], server, nupa=False))
        time.sleep(SETTLE_S)  # nothing in /proc says that an RDMA CM listens
        self.pair.run(self.pair.hosts[1], client)
        if listener.wait(TIMEOUT_S):
            raise RuntimeError(f"{server} failed")

    def record(self, file: Path, options: Sequence[str], programs: Sequence[Meeting]) -> None:
        # Without the snapshot length a packet takes 256 KiB of the kernel's buffer of 2 MiB.
        argv = ["tcpdump", "--immediate-mode", "-U", "-s", "2048", "-w", "-", *options, ROCE]
        with file.open("wb") as out:
            tcpdump = subprocess.Popen(
                self.pair.command(self.pair.hosts[0], argv, nupa=False),
                stdout=out,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert tcpdump.stderr is not None
            for line in tcpdump.stderr:
                if "listening on" in line:
                    break
            for server, client, port in programs:
                self.meet(server, client, port)
            time.sleep(SETTLE_S)
            tcpdump.terminate()
            said = tcpdump.communicate(timeout=TIMEOUT_S)[1]
        if "\n0 packets dropped by kernel" not in said:
            raise RuntimeError(f"{file} is not complete:\n{said}")


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    server = "192.168.77.1"
    recorder = Recorder()
    try:
        recorder.set_up()
        by_tcp = [
            ([*argv, "-p", str(18600 + i)], [*argv, "-p", str(18600 + i), server], 18600 + i)
            for i, argv in enumerate(ON_ETH0)
        ]
        recorder.record(folder / "rxe_eth0.pcap", ["-i", "eth0"], by_tcp)
        rping = ["rping", "-C", "3", "-S", "100", "-a", server]
        udaddy = ["udaddy", "-C", "2", "-S", "50"]
        recorder.record(
            folder / "rxe_any.pcap",
            ["-i", "any", "--time-stamp-precision=nano"],
            [
                ([*rping, "-s"], [*rping, "-c"], 0),
                ([*udaddy, "-b", server], [*udaddy, "-s", server], 0),
            ],
        )
    finally:
        recorder.close()


if __name__ == "__main__":
    main()
