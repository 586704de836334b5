# SPDX-License-Identifier: BSD-3-Clause
"""Component commands: return codes, effects, and the rows of a table of commands.

Sections are those of the CXL Specification 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag

from nupa.base.errors import RemoteError


class Code(IntEnum):
    """Command return codes (8.2.8.4.5.1)."""

    SUCCESS = 0x00
    BACKGROUND_STARTED = 0x01
    INVALID_INPUT = 0x02
    UNSUPPORTED = 0x03
    INTERNAL_ERROR = 0x04
    RETRY_REQUIRED = 0x05
    BUSY = 0x06
    MEDIA_DISABLED = 0x07
    FW_TRANSFER_IN_PROGRESS = 0x08
    FW_TRANSFER_OUT_OF_ORDER = 0x09
    FW_VERIFICATION_FAILED = 0x0A
    INVALID_SLOT = 0x0B
    ACTIVATION_FAILED_ROLLED_BACK = 0x0C
    ACTIVATION_FAILED_COLD_RESET = 0x0D
    INVALID_HANDLE = 0x0E
    INVALID_PHYSICAL_ADDRESS = 0x0F
    INJECT_POISON_LIMIT = 0x10
    PERMANENT_MEDIA_FAILURE = 0x11
    ABORTED = 0x12
    INVALID_SECURITY_STATE = 0x13
    INCORRECT_PASSPHRASE = 0x14
    UNSUPPORTED_MAILBOX = 0x15
    INVALID_PAYLOAD_LENGTH = 0x16
    INVALID_LOG = 0x17
    INTERRUPTED = 0x18
    UNSUPPORTED_FEATURE_VERSION = 0x19
    UNSUPPORTED_FEATURE_SELECTION = 0x1A
    FEATURE_TRANSFER_IN_PROGRESS = 0x1B
    FEATURE_TRANSFER_OUT_OF_ORDER = 0x1C
    RESOURCES_EXHAUSTED = 0x1D
    INVALID_EXTENT_LIST = 0x1E
    TRANSFER_OUT_OF_ORDER = 0x1F
    NO_BACKGROUND_ABORT = 0x20


class Effect(IntFlag):
    """Effects of a command, as in the Command Effects Log (8.2.9.5.2.1)."""

    NONE = 0
    CONFIG_AFTER_COLD_RESET = 1 << 0
    CONFIG = 1 << 1
    DATA = 1 << 2
    POLICY = 1 << 3
    LOG = 1 << 4
    SECURITY = 1 << 5
    BACKGROUND = 1 << 6
    ABORTABLE = 1 << 8


class CommandError(RemoteError):
    """A command that failed; nothing has changed."""

    def __init__(self, code: Code, why: str = "") -> None:
        super().__init__(f"{code.name.lower().replace('_', ' ')}{': ' if why else ''}{why}")
        self.code = code
        self._why = why

    @property
    def reason(self) -> str:
        """The message, without "invalid input" where a reason follows."""
        return self._why if self._why and self.code is Code.INVALID_INPUT else str(self)

    @classmethod
    def said(cls, code: Code, message: str) -> CommandError:
        """Returns the error with this message, which another process has written."""
        error = cls(code)
        error.args = (message,)
        return error


@dataclass(frozen=True, slots=True)
class Background:
    """A background operation: *finish* is called when it completes, *abort* if it is aborted.  If
    *finish* raises CommandError, that is the operation's return code."""

    finish: Callable[[], None]
    abort: Callable[[], None] | None = None


#: handler(payload): the answer, at most the payload size.  It raises CommandError before it
#: changes anything.
Handler = Callable[[bytes], "bytes | Background"]

_MOST = 1 << 21  # more than any payload


def exactly(size: int) -> range:
    """Returns the rule for an input of *size* bytes."""
    return range(size, size + 1)


def at_least(size: int, step: int = 1) -> range:
    """Returns the rule for *size* bytes, and any number of items of *step* bytes behind."""
    return range(size, _MOST, step)


@dataclass(frozen=True, slots=True)
class Command:
    """A row of a table of commands; *lengths* are the allowed lengths of the input, in bytes."""

    opcode: int
    name: str
    lengths: range
    handler: Handler
    effects: Effect = Effect.NONE
    #: Whether it is refused while media is disabled (8.2.8.5.1.1), during a sanitize.
    needs_media: bool = False


def table(commands: Iterable[Command]) -> dict[int, Command]:
    """Returns a table by opcode, sorted.  ValueError: two commands have one opcode."""
    rows = sorted(commands, key=lambda row: row.opcode)
    found = {row.opcode: row for row in rows}
    if len(found) < len(rows):
        raise ValueError("two commands have one opcode")
    return found


def find(commands: Mapping[int, Command], opcode: int, length: int) -> Command:
    """Returns the command of *opcode*.  CommandError: there is none, or *length* is not allowed."""
    command = commands.get(opcode)
    if command is None:
        raise CommandError(Code.UNSUPPORTED, f"opcode {opcode:#06x}")
    if length not in command.lengths:
        raise CommandError(Code.INVALID_PAYLOAD_LENGTH, f"{command.name}: {length} bytes")
    return command


def require(condition: object, code: Code = Code.INVALID_INPUT, why: str = "") -> None:
    """Raises CommandError with *code* unless *condition* holds."""
    if not condition:
        raise CommandError(code, why)
