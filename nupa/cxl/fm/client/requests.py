# SPDX-License-Identifier: BSD-3-Clause
"""Requests, answers and notifications of a manager, over a socket or in one process."""

from __future__ import annotations

import errno
import itertools
from typing import Self

from nupa.base.closing import Closing
from nupa.base.errors import RemoteError
from nupa.cxl.fm import messages
from nupa.cxl.fm.client.transport import FmTransport, LocalTransport, SocketTransport
from nupa.cxl.fm.mctp import MANAGER, TAGS, MctpMessage, MessageType, host_endpoint
from nupa.cxl.fm.messages import Cci, FmOpcode
from nupa.cxl.fm.server.manager import Manager
from nupa.cxl.fm.server.session import GET_REFUSAL
from nupa.cxl.function.cci import Code, CommandError
from nupa.fabric.meant import meant_name, name_of

_BYTE = 256


class Requests(Closing):
    """A manager's connection: `open` for a named fabric, `of` for a switch in this process.

    Methods raise CommandError, whose `code` is the switch's return code, and RemoteError if the
    other end is gone."""

    def __init__(self, transport: FmTransport) -> None:
        self._transport = transport
        self._tags = itertools.count()

    @classmethod
    def of(cls, manager: Manager) -> Self:
        """Connects to a switch in this process: the same messages, without a socket."""
        return cls(LocalTransport(manager))

    @classmethod
    def open(cls, name: str | None = None) -> Self:
        """Connects to the fabric *name*, or to the default one.  LocalError: no server answers, or
        it is another user's."""
        return cls(SocketTransport(name_of(name or meant_name())))

    def close(self) -> None:
        self._transport.close()

    def request(
        self, opcode: int, payload: bytes = b"", *, cci: bool = False, host: int | None = None
    ) -> bytes:
        """Sends a command, and returns the payload of its answer; with *host*, as the host of that
        virtual switch.  CommandError: its return code."""
        kind = MessageType.CCI if cci else MessageType.FM_API
        tag = next(self._tags)
        asked = Cci(opcode, payload, tag % _BYTE)
        source = MANAGER if host is None else host_endpoint(host)
        request = MctpMessage(kind, asked.pack(), tag % TAGS, source=source)
        message = self._transport.exchange(request)
        answer = messages.unpack(message.body)
        if not answer.response or (answer.opcode, answer.tag) != (opcode, tag % _BYTE):
            raise RemoteError(f"asked {opcode:#06x}, answered {answer.opcode:#06x}", errno.EPROTO)
        return self._payload_of(answer, opcode)

    def tunnel(
        self, port: int, opcode: int, payload: bytes = b"", *, ld: int | None = None
    ) -> bytes:
        """Sends a command to the device at a port, or to one of its LDs.  CommandError: the return
        code of the switch, the device or the LD."""
        if ld is not None:
            inner = self._wrapped(ld, opcode, payload)
            return self._unwrapped(self.tunnel(port, FmOpcode.TUNNEL, inner), opcode)
        answer = self.request(FmOpcode.TUNNEL, self._wrapped(port, opcode, payload))
        return self._unwrapped(answer, opcode)

    def _wrapped(self, target: int, opcode: int, payload: bytes) -> bytes:
        message = Cci(opcode, payload, next(self._tags) % _BYTE).pack()
        return messages.TUNNEL.pack(messages.Tunnelled(target, 0, len(message))) + message

    def _unwrapped(self, answer: bytes, opcode: int) -> bytes:
        size = int.from_bytes(answer[:2], "little")
        return self._payload_of(messages.unpack(answer[4 : 4 + size]), opcode)

    def _payload_of(self, answer: Cci, opcode: int) -> bytes:
        if answer.code in (Code.SUCCESS, Code.BACKGROUND_STARTED):
            return answer.payload
        code = Code(answer.code) if answer.code in list(Code) else Code.INTERNAL_ERROR
        why = self._refusal() if opcode != GET_REFUSAL else ""
        if why:
            raise CommandError.said(code, why)
        known = opcode in list(FmOpcode)
        raise CommandError(code, FmOpcode(opcode).name if known else f"opcode {opcode:#06x}")

    def _refusal(self) -> str:
        """Returns the reason of the last refusal; empty: the switch is another vendor's."""
        try:
            said = self.request(GET_REFUSAL, cci=True).decode()
        except (CommandError, UnicodeDecodeError):
            return ""
        return said if said.isprintable() else ""
