# SPDX-License-Identifier: BSD-3-Clause
"""Further network interfaces of guests, which lead out of the machine; TOML or one option.

[[nic]]
guest = "host0"
medium = "stream"          # Ethernet frames at a Unix socket where another program listens
to = "/run/user/1000/far0" # its path; for "tap": the interface; for "user": forwarded TCP ports
address = "10.1.0.2/24"    # one or several, with commas between them
mtu = 1500
rxe = true                 # soft-RoCE (rdma_rxe) on it

As an option: `--nic stream:PATH,address=10.1.0.2/24,mtu=1500,rxe`.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from nupa.topology.error import TopologyError
from nupa.topology.toml_table import Table

MEDIA = ("stream", "tap", "user")
NICS_MAX = 8
MTU_MIN = 68
#: QEMU's NET_BUFSIZE has room for a frame of 64 KiB.
MTU_MAX = 65521
MTU_DEFAULT = 1500
_SOCKET_PATH_BYTES_MAX = 107
_INTERFACE = re.compile(r"[^\s/:,]{1,15}")  # netdevice(7): IFNAMSIZ
_PORTS = re.compile(r"(\d+)(?:-(\d+))?")
_PORTS_MAX = 64
#: The guest's address in QEMU's user network; 10.0.2.2 is this machine there.
_USER_ADDRESS = "10.0.2.15/24"


@dataclass(frozen=True)
class Nic:
    """An interface of a guest.  TopologyError: a value is out of range."""

    guest: str
    medium: str
    to: str
    address: str = ""
    mtu: int = MTU_DEFAULT
    rxe: bool = False

    def __post_init__(self) -> None:
        if self.medium not in MEDIA:
            raise TopologyError(
                f"`medium` of a nic is {self.medium!r}: choose one of {', '.join(MEDIA)}"
            )
        if not MTU_MIN <= self.mtu <= MTU_MAX:
            raise TopologyError(f"`mtu` of a nic is {self.mtu}: choose {MTU_MIN} to {MTU_MAX}")
        if self.medium == "stream":
            self._check_path()
        elif self.medium == "tap" and not _INTERFACE.fullmatch(self.to):
            raise TopologyError(f"`to` of a nic is {self.to!r}: name a tap interface, as 'tap0'")
        for each in self.addresses:
            try:
                ipaddress.ip_interface(each)
            except ValueError as error:
                raise TopologyError(
                    f"`address` of a nic is {each!r}: write address and prefix, as 10.1.0.2/24"
                ) from error
        _ = self.ports

    def _check_path(self) -> None:
        if not self.to.startswith("/") or "\0" in self.to:
            raise TopologyError(f"`to` of a nic is {self.to!r}: give the socket's absolute path")
        if len(self.to.encode(errors="surrogateescape")) > _SOCKET_PATH_BYTES_MAX:
            raise TopologyError(
                f"`to` of a nic has more than {_SOCKET_PATH_BYTES_MAX} bytes, the limit of "
                f"unix(7): choose a shorter path"
            )

    @property
    def addresses(self) -> tuple[str, ...]:
        if self.medium == "user" and not self.address:
            return (_USER_ADDRESS,)
        return tuple(self.address.split(",")) if self.address else ()

    @property
    def ports(self) -> tuple[int, ...]:
        """The TCP ports of 127.0.0.1 that lead to the guest; medium "user" only."""
        if self.medium != "user" or not self.to:
            return ()
        found = _PORTS.fullmatch(self.to)
        first = int(found[1]) if found else 0
        last = int(found[2] or found[1]) if found else 0
        if not 0 < first <= last < 65536 or last - first >= _PORTS_MAX:
            raise TopologyError(
                f"`to` of a nic is {self.to!r}: give TCP ports, as '18515' or '18515-18522', "
                f"at most {_PORTS_MAX}"
            )
        return tuple(range(first, last + 1))


def parse(text: str) -> Nic:
    """Parses the option `MEDIUM:TO[,address=A/N][,mtu=N][,rxe][,guest=HOST]`.

    An address may be given several times.  TopologyError: it cannot be parsed.
    """
    head, *rest = text.split(",")
    medium, _, to = head.partition(":")
    guest, addresses, mtu, rxe = "host0", [], MTU_DEFAULT, False
    for word in rest:
        key, _, value = word.partition("=")
        if word == "rxe":
            rxe = True
        elif key == "address":
            addresses.append(value)
        elif key == "mtu" and value.isdecimal():
            mtu = int(value)
        elif key == "guest":
            guest = value
        else:
            raise TopologyError(
                f"`{word}` of the nic {text!r} has no meaning: write address=10.1.0.2/24, "
                f"mtu=1500, rxe or guest=host0"
            )
    return Nic(guest, medium, to, ",".join(addresses), mtu, rxe)


def of_table(table: Table) -> Nic:
    """Makes one of a table [[nic]].  TopologyError names the key."""
    nic = Nic(
        table.text("guest", "host0"),
        table.text("medium", required=True),
        table.text("to"),
        table.text("address"),
        table.number("mtu", MTU_MIN, MTU_MAX, MTU_DEFAULT),
        bool(table.get("rxe", bool, False)),
    )
    table.done()
    return nic


def mac_of(host: int, number: int) -> str:
    """Returns the Ethernet address of nic *number* (0, 1, …) of a guest."""
    return f"52:54:00:78:{number:02x}:{host + 1:02x}"


# "$@": Ethernet address, the name of soft-RoCE's device or nothing, IP addresses.
_SET_UP = """\
for at in /sys/class/net/*; do
	[ "$(cat "$at/address")" = "$1" ] && nic=${at##*/}
done
[ "$nic" ] || { echo "no interface has the address $1" >&2; exit 1; }
rxe=$2
shift 2
for address; do
	case $address in *:*) more=nodad ;; *) more= ;; esac
	ip address replace "$address" dev "$nic" $more || exit
done
ip link set "$nic" up || exit
[ "$rxe" ] || exit 0
modprobe rdma_rxe && modprobe ib_uverbs && modprobe rdma_ucm || exit
[ -e "/sys/class/infiniband/$rxe" ] || rdma link add "$rxe" type rxe netdev "$nic"
"""


def set_up(host: int, nics: tuple[Nic, ...]) -> tuple[tuple[str, ...], ...]:
    """Returns the commands that give a guest's *nics* their addresses, and soft-RoCE."""
    commands, devices = [], 0
    for number, nic in enumerate(nics):
        device = f"rxe{devices}" if nic.rxe else ""
        devices += nic.rxe
        commands.append(("sh", "-c", _SET_UP, "nic", mac_of(host, number), device, *nic.addresses))
    return tuple(commands)
