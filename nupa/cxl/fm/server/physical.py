# SPDX-License-Identifier: BSD-3-Clause
"""Commands of physical ports: identity, state, reset, bridges, secrets (CXL 3.1 7.6.7.1, 51xxh)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

from nupa.cxl.device.mld import MOST_LDS, Mld
from nupa.cxl.fm import messages
from nupa.cxl.fm.messages import FmOpcode, PhysicalPortInfo, SwitchInfo
from nupa.cxl.function.cci import Code, Command, CommandError, Effect, at_least, exactly, require
from nupa.cxl.registers.config import ConfigSpace
from nupa.cxl.switch.physical_port import PhysicalPort, PortState
from nupa.cxl.switch.switch import Switch, VirtualSwitch

_SLD, _MLD = 4, 5  # Connected Device Type
_FLIT_256 = 3  # Connected Device Mode
_MODES = 0b0110  # 68 B and 256 B flits
_LTSSM_DETECT, _LTSSM_L0 = 0, 4
_IN_RESET, _PRESENT = 1 << 1, 1 << 2
_ASSERT_PERST, _DEASSERT_PERST, _RESET = 0, 1, 2


#: asker(): the virtual switch of the requesting host; None: the fabric manager.
Asker = Callable[[], int | None]


def commands(switch: Switch, asker: Asker) -> Iterator[Command]:
    """Yields the commands.  A command that fails has not changed *switch*."""
    each, secrets = _Physical(switch), _Secrets(switch, asker)
    reset = Effect.CONFIG | Effect.DATA
    size = messages.CONFIG.size
    yield Command(FmOpcode.IDENTIFY_SWITCH, "identify switch", exactly(0), each.identify)
    yield Command(FmOpcode.PORT_STATE, "get port state", at_least(2), each.state)
    yield Command(FmOpcode.PORT_CONTROL, "port control", exactly(2), each.control, reset)
    yield Command(
        FmOpcode.PPB_CONFIG, "PPB configuration", exactly(size), each.config, Effect.CONFIG
    )
    yield Command(
        FmOpcode.SECRET_STATE, "get domain validation SV state", exactly(0), secrets.state
    )
    secret = exactly(messages.SECRET_BYTES)
    yield Command(FmOpcode.SET_SECRET, "set domain validation SV", secret, secrets.set)
    of = "get VCS domain validation SV state"
    yield Command(FmOpcode.VCS_SECRET_STATE, of, exactly(1), secrets.vcs_state)
    yield Command(FmOpcode.VCS_SECRET, "get domain validation SV", exactly(1), secrets.get)


class _Physical:
    def __init__(self, switch: Switch) -> None:
        self._switch = switch

    def identify(self, _payload: bytes) -> bytes:
        switch = self._switch
        bound = [b for b in switch.bindings if b[2].done]
        info = SwitchInfo(
            0,
            len(switch.ports),
            len(switch.virtual),
            messages.bitmap(port.number for port in switch.ports if port.up),
            messages.bitmap(virtual.number for virtual in switch.virtual if virtual.usp.up),
            sum(len(virtual.vppbs) for virtual in switch.virtual),
            len(bound),
            switch.decoders,
        )
        return messages.SWITCH.pack(info)

    def state(self, payload: bytes) -> bytes:
        count, numbers = payload[0], payload[1:]
        whole = count == len(numbers)
        require(
            whole, Code.INVALID_PAYLOAD_LENGTH, f"{count} ports announced, {len(numbers)} named"
        )
        infos = (messages.PORT.pack(self._info(number)) for number in numbers)
        return bytes([count, 0, 0, 0]) + b"".join(infos)

    def _info(self, number: int) -> PhysicalPortInfo:
        if number >= len(self._switch.ports):
            return PhysicalPortInfo(number, PortState.INVALID, *[0] * 12)
        return port_info(self._switch.port(number))

    def control(self, payload: bytes) -> bytes:
        request = messages.PORT_ACTION.unpack(payload)
        known = request.action in (_ASSERT_PERST, _DEASSERT_PERST, _RESET)
        require(known, why=f"action {request.action}: assert PERST, deassert PERST, reset: 0 to 2")
        port = self._switch.port(request.port)
        if request.action == _RESET:
            port.reset()
        else:
            port.assert_reset(request.action == _ASSERT_PERST)
        return b""

    def config(self, payload: bytes) -> bytes:
        request = messages.CONFIG.unpack(payload)
        port = self._switch.port(request.port)
        below = port.role is PortState.DOWNSTREAM
        require(below, why=f"port {request.port} is an upstream port: it has no bridge to read")
        free = None not in port.bound
        require(free, why=f"port {request.port} is bound: its bridge is the host's")
        return config_access(port.ppb.config, request.where, request.data)


class _Secrets:
    """Domain validation (7.6.7.1.5 to .8): a host sets the secret value of its virtual switch once;
    the fabric manager reads it."""

    def __init__(self, switch: Switch, asker: Asker) -> None:
        self._switch = switch
        self._asker = asker

    def _own(self) -> VirtualSwitch:
        vcs = self._asker()
        if vcs is None:
            raise CommandError(Code.UNSUPPORTED, "only a host has a virtual switch of its own")
        return self._switch.vcs(vcs)

    def state(self, _payload: bytes) -> bytes:
        return bytes([self._own().secret is not None])

    def set(self, payload: bytes) -> bytes:
        virtual = self._own()
        require(
            virtual.secret is None,
            why=f"the secret of virtual switch {virtual.number} is set already",
        )
        virtual.secret = UUID(bytes=payload)
        return b""

    def vcs_state(self, payload: bytes) -> bytes:
        return bytes([self._switch.vcs(payload[0]).secret is not None])

    def get(self, payload: bytes) -> bytes:
        """Returns the secret value; zeros if it is not set."""
        secret = self._switch.vcs(payload[0]).secret
        return secret.bytes if secret else bytes(messages.SECRET_BYTES)


def port_info(port: PhysicalPort) -> PhysicalPortInfo:
    """Returns the answer of Get Physical Port State for a port."""
    link = port.link
    # Mode and type are reserved for upstream ports.
    mode = _FLIT_256 if port.up and port.role is PortState.DOWNSTREAM else 0
    kind = (_MLD if isinstance(port.device, Mld) else _SLD) if port.device else 0
    return PhysicalPortInfo(
        port.number,
        port.state,
        mode,
        kind,
        _MODES,
        link.width,
        link.width if port.up else 0,
        (1 << link.speed) - 1,
        link.speed,
        link.speed if port.up else 0,
        _LTSSM_L0 if port.up else _LTSSM_DETECT,
        0,
        _IN_RESET * port.in_reset | _PRESENT * port.present,
        # The number of supported LDs, minus one.
        MOST_LDS - 1 if port.role is PortState.DOWNSTREAM else 0,
    )


def config_access(config: ConfigSpace, where: bytes, data: int) -> bytes:
    """Accesses one DW of configuration space (7.6.7.1.4); bytes that are not enabled read as 0."""
    word = int.from_bytes(where, "little")
    offset, enables = word & 0xFFF, word >> 12 & 0xF
    require(offset % 4 == 0, why=f"offset {offset:#x} is not that of a DW, a multiple of 4")
    if word & messages.WRITE:
        pieces = {0xF: [(0, 4)], 0x3: [(0, 2)], 0xC: [(2, 2)]}.get(
            enables, [(i, 1) for i in range(4) if enables >> i & 1]
        )
        for at, size in pieces:
            config.write(offset + at, size, data >> 8 * at)
        return bytes(4)
    whole = config.read(offset, 4).to_bytes(4, "little")
    return bytes(byte if enables >> i & 1 else 0 for i, byte in enumerate(whole))
