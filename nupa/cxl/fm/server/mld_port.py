# SPDX-License-Identifier: BSD-3-Clause
"""Commands of ports with multi-logical devices: tunnel, LD accesses (CXL 3.1 7.6.7.3, 53xxh)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nupa.cxl.fm import messages
from nupa.cxl.fm.mctp import FramingError
from nupa.cxl.fm.messages import Cci, FmOpcode, LdMemoryAccess
from nupa.cxl.fm.server.physical import config_access
from nupa.cxl.function.cci import Code, Command, CommandError, Effect, at_least, exactly, require
from nupa.cxl.function.function import Function, RegisterPlace
from nupa.cxl.switch.switch import Switch

MOST_MEMORY_BYTES = 4096  # of one memory request

#: behind(port, request): the answer of the device at a port: CommandError if there is none.
Behind = Callable[[int, Cci], Cci]


class MldPort:
    """The commands of such ports; *behind* sends messages to the device at a port."""

    def __init__(self, switch: Switch, behind: Behind) -> None:
        self._switch = switch
        self._behind = behind

    def commands(self) -> Iterator[Command]:
        least, config = messages.TUNNEL.size + messages.HEADER.size, messages.LD_CONFIG.size
        memory = at_least(messages.LD_MEMORY.size)
        yield Command(FmOpcode.TUNNEL, "tunnel", at_least(least), self._tunnel)
        yield Command(
            FmOpcode.LD_CONFIG, "LD configuration", exactly(config), self._config, Effect.CONFIG
        )
        yield Command(FmOpcode.LD_MEMORY, "LD memory", memory, self._memory, Effect.DATA)

    def _tunnel(self, payload: bytes) -> bytes:
        return tunnel(payload, self._behind)

    def _config(self, payload: bytes) -> bytes:
        request = messages.LD_CONFIG.unpack(payload)
        function = self._function(request.port, request.ld)
        return config_access(function.config, request.where, request.data)

    def _function(self, port: int, ld: int) -> Function:
        """Returns the function of an LD that is not bound."""
        function = self._switch.mld(port).function(ld)
        require(
            ld not in self._switch.port(port).bound,
            why=f"LD {ld} at port {port} is bound to a host",
        )
        return function

    def _memory(self, payload: bytes) -> bytes:
        request = messages.LD_MEMORY.unpack(payload)
        data = payload[messages.LD_MEMORY.size :]
        word = int.from_bytes(request.where, "little")
        writes = bool(word & messages.WRITE)
        places = self._places(request, word)
        wanted = request.length if writes else 0
        _require_length(len(data) == wanted, f"{len(data)} bytes of data, not {wanted}")
        if writes:
            for i, (space, at) in enumerate(places):
                space.write(at, 4, int.from_bytes(data[4 * i : 4 * i + 4], "little"))
            return bytes(4)
        read = b"".join(space.read(at, 4).to_bytes(4, "little") for space, at in places)
        return len(read).to_bytes(2, "little") + bytes(2) + read

    def _places(self, request: LdMemoryAccess, word: int) -> list[RegisterPlace]:
        """Finds the registers of each DW; only whole DWs are supported."""
        function = self._function(request.port, request.ld)
        length, last = request.length, 0xF if request.length > 4 else 0
        require(
            0 < length <= MOST_MEMORY_BYTES and length % 4 == 0 and request.address % 4 == 0,
            why=f"{length} bytes at {request.address:#x}: an access has whole DWs, "
            f"{MOST_MEMORY_BYTES} bytes at most",
        )
        whole = word >> 12 & 0xF == 0xF and word >> 16 & 0xF == last
        require(whole, why="byte enables other than those of whole DWs are not supported")
        found = [function.place(request.address + at) for at in range(0, length, 4)]
        places = [place for place in found if place is not None]
        inside = len(places) == len(found)
        require(
            inside, why=f"{length} bytes at {request.address:#x} are not all in a BAR of the LD"
        )
        return places


def _require_length(condition: bool, why: str) -> None:
    require(condition, Code.INVALID_PAYLOAD_LENGTH, why)


def tunnel(payload: bytes, behind: Behind) -> bytes:
    """Executes a tunnelled message (7.6.7.3.1): *behind* takes it to the device at a port, or to an
    LD."""
    request = messages.TUNNEL.unpack(payload)
    message = payload[messages.TUNNEL.size :]
    kind = request.target_type & 0xF
    require(kind == 0, why=f"target type {kind}: a tunnel leads to a port or an LD, type 0")
    whole = request.size == len(message)
    _require_length(whole, f"{len(message)} bytes in the tunnel, and {request.size} are announced")
    try:
        inner = messages.unpack(message)
    except FramingError as error:
        raise CommandError(Code.INVALID_INPUT, str(error)) from error
    require(not inner.response, why="the message in the tunnel is a response, not a request")
    answer = behind(request.target, inner).pack()
    fits = len(answer) + 4 <= messages.PAYLOAD_BYTES
    require(fits, Code.INTERNAL_ERROR, f"an answer of {len(answer)} bytes does not fit a tunnel")
    return len(answer).to_bytes(2, "little") + bytes(2) + answer
