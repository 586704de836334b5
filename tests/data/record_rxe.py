# SPDX-License-Identifier: BSD-3-Clause
"""Records tests/data/rxe_eth0.pcap, rxe_any.pcap and rxe_more.pcap: RoCE v2 of the kernel's
rdma_rxe, from the first of two guests of `nupa vm up`.

    .venv/bin/python tests/data/record_rxe.py [FOLDER] [FILE]

    rxe_eth0.pcap   `tcpdump -i eth0`: Ethernet, µs.  SEND over IPv4 and IPv6, UD, WRITE,
                    READ, FETCH AND ADD; messages of more than one packet, and with padding
    rxe_any.pcap    `tcpdump -i any --time-stamp-precision=nano`: SLL2, ns.  rping and udaddy, with
                    the messages of their RDMA CM
    rxe_more.pcap   `tcpdump -i eth0`: refused connections (REJ, SIDR_REP with a status), rping by
                    IPv6, ucmatose, UC, COMPARE AND SWAP, several READs and WRITEs in flight

FILE records that one alone.  The script needs tcpdump, perftest, ibverbs-utils, rdmacm-utils,
ibverbs-providers and iproute2, and runs for a minute.  `make rxe-captures` starts it.  The files
are read by
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

# Beyond those of ON_ETH0.
MORE: tuple[tuple[str, ...], ...] = (
    ("ibv_uc_pingpong", "-d", "rxe0", "-g", "1", "-s", "2101", "-n", "2"),
    ("ib_atomic_lat", "-d", "rxe0", "-x", "1", "-A", "CMP_AND_SWAP", "-n", "5"),
    ("ib_read_bw", "-d", "rxe0", "-x", "1", "-s", "1025", "-n", "5"),
    ("ib_write_bw", "-d", "rxe0", "-x", "0", "-s", "1333", "-n", "5"),
    ("ib_send_bw", "-d", "rxe0", "-x", "1", "-s", "19", "-n", "5"),
)
# Nobody listens there.
REFUSED = """\
! timeout 20 rping -c -C 1 -a 192.168.77.1 -p 7999 &&
	! timeout 20 udaddy -s 192.168.77.1
"""


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

    def address6(self) -> str:
        """Returns an IPv6 address of the first guest: rdma_cm takes no link-local ones here."""
        for number, host in enumerate(self.pair.hosts):
            argv = ["ip", "address", "add", f"fd77::{number + 1}/64", "dev", "eth0", "nodad"]
            self.pair.run(host, argv)
        return "fd77::1"

    def record(
        self, file: Path, options: Sequence[str], programs: Sequence[Meeting], client: str = ":"
    ) -> None:
        """Records *programs*, after *client*, a shell command of the second guest alone."""
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
            self.pair.run(self.pair.hosts[1], ["sh", "-c", client])
            for one, other, port in programs:
                self.meet(one, other, port)
            time.sleep(SETTLE_S)
            tcpdump.terminate()
            said = tcpdump.communicate(timeout=TIMEOUT_S)[1]
        if "\n0 packets dropped by kernel" not in said:
            raise RuntimeError(f"{file} is not complete:\n{said}")


def by_tcp(programs: Sequence[Sequence[str]], server: str) -> list[Meeting]:
    return [
        ([*argv, "-p", str(18600 + i)], [*argv, "-p", str(18600 + i), server], 18600 + i)
        for i, argv in enumerate(programs)
    ]


def by_cm(server: str) -> list[Meeting]:
    rping = ["rping", "-C", "3", "-S", "100", "-a", server]
    udaddy = ["udaddy", "-C", "2", "-S", "50"]
    return [
        ([*rping, "-s"], [*rping, "-c"], 0),
        ([*udaddy, "-b", server], [*udaddy, "-s", server], 0),
    ]


def more_by_cm(server: str) -> list[Meeting]:
    rping = ["rping", "-C", "2", "-S", "65", "-a", server]
    ucmatose = ["ucmatose", "-C", "3", "-S", "129", "-P", "ipv6"]
    return [
        ([*rping, "-s"], [*rping, "-c"], 0),
        ([*ucmatose, "-b", server], [*ucmatose, "-s", server], 0),
    ]


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    server = "192.168.77.1"
    recorder = Recorder()
    try:
        recorder.set_up()
        if only in ("", "rxe_eth0.pcap"):
            recorder.record(folder / "rxe_eth0.pcap", ["-i", "eth0"], by_tcp(ON_ETH0, server))
        if only in ("", "rxe_any.pcap"):
            recorder.record(
                folder / "rxe_any.pcap",
                ["-i", "any", "--time-stamp-precision=nano"],
                by_cm(server),
            )
        if only in ("", "rxe_more.pcap"):
            recorder.record(
                folder / "rxe_more.pcap",
                ["-i", "eth0"],
                [*more_by_cm(recorder.address6()), *by_tcp(MORE, server)],
                REFUSED,
            )
    finally:
        recorder.close()


if __name__ == "__main__":
    main()
