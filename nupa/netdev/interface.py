# SPDX-License-Identifier: BSD-3-Clause
"""nupa_net0: makes, repairs and opens the TAP device of a host in the current namespace.

TAP ioctls and flags are those of <linux/if_tun.h>; links and addresses go by netlink (pyroute2).
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from array import array
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from nupa.base.errors import FabricError, LocalError
from nupa.netdev import address

if TYPE_CHECKING:
    from pyroute2 import IPRoute

NAME = "nupa_net0"
TUN = "/dev/net/tun"
QUEUES_MAX = 16
#: Frames that wait for a late pump in the interface's queue; the kernel drops further ones.
TX_QUEUE_FRAMES = 1000

_TUNSETIFF = 0x400454CA
_TUNSETPERSIST = 0x400454CB
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
_IFF_MULTI_QUEUE, _IFF_TUN_EXCL = 0x0100, 0x8000
_IFREQ = "16sH22x"
# <linux/sockios.h>, <linux/ethtool.h>: struct ethtool_drvinfo; /sys may be the shim's.
_SIOCETHTOOL, _ETHTOOL_GDRVINFO, _DRVINFO = 0x8946, 3, "I32s160x"
_KERNELS_DRIVER = b"nupa_net"  # csrc/kernel/net/device.c

_IFF_UP = 1
_IFA_F_NODAD, _IFA_F_PERMANENT = 0x02, 0x80
_ADDR_GEN_MODE_NONE = 1
_TUN_TYPE_TAP = 2
# An address is refused where IPv6 is switched off or missing in the kernel.
_NO_IPV6 = (errno.EACCES, errno.EOPNOTSUPP, errno.EAFNOSUPPORT, errno.EPERM)


class InterfaceConfig(NamedTuple):
    """The wanted interface."""

    mac: str
    ipv4: str
    mtu_bytes: int
    queues: int

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The addresses with their prefixes' bits; no IPv6 where the MTU is too small for it."""
        found = [(self.ipv4, address.IPV4_PREFIX_BITS)]
        if self.mtu_bytes >= address.MTU_IPV6_MIN_BYTES:
            found += [
                (address.link_local(self.mac), address.IPV6_PREFIX_BITS),
                (address.unique_local(self.ipv4), address.IPV6_PREFIX_BITS),
            ]
        return found


class Ensured(NamedTuple):
    """The result.  done: what was wrong and is right now, in words; made: the interface is new."""

    done: list[str]
    made: bool
    addresses: list[str]


def ensure(
    spec: InterfaceConfig, *, own: bool, known: bool, attach: bool
) -> tuple[Ensured, list[int]]:
    """Makes nupa_net0 as *spec* says, or repairs it; opens its queues if it is new or *attach*.

    own: `net up` made the namespace; known: `net up` made the interface before.
    Returns non-blocking descriptors of the queues.  A new interface is not persistent yet: see
    persist().  LocalError: another interface has its name or its addresses (EEXIST), or a device, a
    module or a permission is missing.
    """
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    fds: list[int] = []
    try:
        with IPRoute() as ip:
            if own:
                _up(ip, "lo")
            link = _link(ip, NAME)
            if link is not None and not known:
                raise LocalError(
                    f"an interface {NAME} is in this namespace already, and is not this "
                    f"host's: take its fabric down, or `ip link del {NAME}` there",
                    errno.EEXIST,
                )
            if link is not None and not _fits(link, spec):
                ip.link("del", index=link["index"])
                link = None
            made = link is None
            if made:
                _refuse_conflicts(ip, spec)
            if made or attach:
                fds = open_queues(spec.queues, new=made)
            done = [f"made {NAME}"] if made else []
            done += _configure(ip, spec, made)
            return Ensured(done, made, _addresses(ip, _link(ip, NAME))), fds
    except NetlinkError as error:
        for fd in fds:
            os.close(fd)
        raise LocalError(
            f"cannot set up {NAME}: {os.strerror(error.code)}; it takes CAP_NET_ADMIN", error.code
        ) from error


def is_of_the_kernel() -> bool:
    """Tells whether nupa_net0 of this namespace is an interface of the module nupa_net."""
    info = array("B", struct.pack(_DRVINFO, _ETHTOOL_GDRVINFO, b""))
    request = struct.pack("16sP16x", NAME.encode(), info.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            fcntl.ioctl(any_socket, _SIOCETHTOOL, request)
        except OSError:
            return False
    driver: bytes = struct.unpack(_DRVINFO, info)[1]
    return driver.rstrip(b"\0") == _KERNELS_DRIVER


def check_device() -> None:
    """Raises LocalError with a remedy where TAP devices cannot be made."""
    try:
        os.close(os.open(TUN, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        raise _no_tun(error) from error


def open_queues(queues: int, *, new: bool) -> list[int]:
    """Opens all queues, of a new or an existing interface, and returns their descriptors.

    LocalError: they cannot be opened.  The pump sets offloads and the size of the vnet header
    (nupa_pump_add).
    """
    flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR
    if queues > 1:
        flags |= _IFF_MULTI_QUEUE
    fds: list[int] = []
    try:
        for number in range(queues):
            fds.append(os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
            exclusive = _IFF_TUN_EXCL if new and number == 0 else 0
            request = struct.pack(_IFREQ, NAME.encode(), flags | exclusive)
            fcntl.ioctl(fds[-1], _TUNSETIFF, request)
    except OSError as error:
        for fd in fds:
            os.close(fd)
        raise _no_tun(error) from error
    return fds


def persist(fd: int, on: bool = True) -> None:
    """Tells whether the interface of this queue stays when its last queue is closed.  OSError."""
    fcntl.ioctl(fd, _TUNSETPERSIST, int(on))


def remove(queues: int) -> None:
    """Removes an interface that no pump serves, if there is one.

    LocalError: another process has it open, or another interface has its name.

    It does without netlink, which takes longer to import than to use: an interface that is not
    persistent goes with its descriptors.  Where there is none, it makes one for a moment.
    """
    fds = open_queues(queues, new=False)
    persist(fds[0], False)
    for fd in fds:
        os.close(fd)


def _no_tun(error: OSError) -> LocalError | FabricError:
    number = error.errno or 0
    what = f"cannot make a TAP device by {TUN}: {os.strerror(number)}; "
    if number in (errno.ENOENT, errno.ENODEV, errno.ENXIO):
        return LocalError(
            what + "`modprobe tun`; in a container: docker run --device /dev/net/tun", number
        )
    if number in (errno.EPERM, errno.EACCES):
        return LocalError(
            what + "let this user read and write it (mode 0666, and the container's devices), and "
            "have CAP_NET_ADMIN: as root, or with user namespaces allowed "
            "(sysctl kernel.apparmor_restrict_unprivileged_userns=0)",
            number,
        )
    if number == errno.EBUSY:
        return LocalError(
            what + f"another process has {NAME} open: end it, then `nupa net up` again", number
        )
    if number == errno.EINVAL:
        return LocalError(what + f"another interface has the name {NAME}", number)
    return FabricError(what + "`nupa doctor` tries each thing that it needs", number)


def _link(ip: IPRoute, name: str) -> Any:
    found = ip.link_lookup(ifname=name)
    return ip.get_links(found[0])[0] if found else None


def _up(ip: IPRoute, name: str) -> bool:
    """Sets the link up; returns whether it was down."""
    link = _link(ip, name)
    if link is None or link["flags"] & _IFF_UP:
        return False
    ip.link("set", index=link["index"], state="up")
    return True


def _fits(link: Any, spec: InterfaceConfig) -> bool:
    """Tells whether it is a TAP device with one queue, or with several, as wanted."""
    info = link.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND")
    data = link.get_nested("IFLA_LINKINFO", "IFLA_INFO_DATA")
    if info != "tun" or data is None:
        return False
    several = bool(data.get_attr("IFLA_TUN_MULTI_QUEUE"))
    header = bool(data.get_attr("IFLA_TUN_VNET_HDR"))
    tap = data.get_attr("IFLA_TUN_TYPE") == _TUN_TYPE_TAP
    return tap and header and several == (spec.queues > 1)


def _refuse_conflicts(ip: IPRoute, spec: InterfaceConfig) -> None:
    for found in ip.get_addr():
        there = found.get_attr("IFA_LOCAL") or found.get_attr("IFA_ADDRESS")
        if there and address.overlaps(there, found["prefixlen"], spec.ipv4):
            link = ip.get_links(found["index"])[0].get_attr("IFLA_IFNAME")
            raise LocalError(
                f"{there}/{found['prefixlen']} of {link} is in this namespace already, and "
                f"overlaps the fabric's {address.network(spec.ipv4)}: "
                f"take that address away, or use another namespace",
                errno.EEXIST,
            )


def _configure(ip: IPRoute, spec: InterfaceConfig, made: bool) -> list[str]:
    """Sets what differs from the wanted interface; tells what that was, unless all is new."""
    from pyroute2.netlink.exceptions import NetlinkError

    link = _link(ip, NAME)
    index = link["index"]
    done = []
    if made:
        # We choose the addresses: a second of duplicate detection is not needed.
        with suppress(NetlinkError):  # a kernel without IPv6
            mode = [["IFLA_INET6_ADDR_GEN_MODE", _ADDR_GEN_MODE_NONE]]
            per_family = [["AF_INET6", {"attrs": mode}]]
            ip.link("set", index=index, IFLA_AF_SPEC={"attrs": per_family})
        ip.link("set", index=index, txqlen=TX_QUEUE_FRAMES)
    if link.get_attr("IFLA_ADDRESS") != spec.mac:
        ip.link("set", index=index, address=spec.mac)
        done.append(f"its MAC address is {spec.mac}")
    if link.get_attr("IFLA_MTU") != spec.mtu_bytes:
        ip.link("set", index=index, mtu=spec.mtu_bytes)
        done.append(f"its MTU is {spec.mtu_bytes}")
    if _up(ip, NAME):
        done.append("it is up")
    there = _addresses(ip, link)
    for wanted, bits in spec.addresses:
        if wanted in there:
            continue
        try:
            ip.addr(
                "add",
                index=index,
                address=wanted,
                prefixlen=bits,
                flags=_IFA_F_NODAD | _IFA_F_PERMANENT,
            )
        except NetlinkError as error:
            if ":" not in wanted or error.code not in _NO_IPV6:
                raise
            continue
        done.append(f"it has {wanted}")
    return [] if made else done


def _addresses(ip: IPRoute, link: Any) -> list[str]:
    found = ip.get_addr(index=link["index"])
    return [entry.get_attr("IFA_LOCAL") or entry.get_attr("IFA_ADDRESS") for entry in found]
