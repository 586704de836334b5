# SPDX-License-Identifier: BSD-3-Clause
"""The CCI message header, opcodes of the FM API, and the layouts of what commands carry.

Sections are those of the CXL Specification 3.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from errno import EINVAL
from re import findall
from struct import Struct, calcsize, error
from typing import Generic, NamedTuple, TypeVar

from nupa.base.errors import LocalError
from nupa.cxl.fm.mctp import FramingError
from nupa.cxl.function.cci import Code

HEADER = Struct("<BBxH3sHH")  # 7.6.3
PAYLOAD_BYTES = 1 << 16  # our limit; the field has 21 bits
TUNNEL_BYTES = 64  # room for the heads of an answer within an answer
WRITE = 1 << 23  # 7.6.7.1.4: of a register access
_BITMAP_BYTES = 32
_BACKGROUND = 1 << 23
SECRET_BYTES = 16  # 7.6.7.1.6: a UUID
NO_LD = 0xFFFF  # 7.6.7.2.2
NOT_BOUND = 0xFF  # 7.6.7.2.1: the LD-ID of a port that is bound as a whole


class FmOpcode(IntEnum):
    """8.2.9.1 and table 8-215."""

    IDENTIFY = 0x0001
    BACKGROUND_STATUS = 0x0002
    ABORT = 0x0005
    IDENTIFY_SWITCH = 0x5100
    PORT_STATE = 0x5101
    PORT_CONTROL = 0x5102
    PPB_CONFIG = 0x5103
    SECRET_STATE = 0x5104
    SET_SECRET = 0x5105
    VCS_SECRET_STATE = 0x5106
    VCS_SECRET = 0x5107
    VCS_INFO = 0x5200
    BIND = 0x5201
    UNBIND = 0x5202
    GENERATE_AER = 0x5203
    TUNNEL = 0x5300
    LD_CONFIG = 0x5301
    LD_MEMORY = 0x5302
    LD_INFO = 0x5400
    LD_ALLOCATIONS = 0x5401
    SET_LD_ALLOCATIONS = 0x5402
    QOS_CONTROL = 0x5403
    SET_QOS_CONTROL = 0x5404
    QOS_STATUS = 0x5405
    QOS_BANDWIDTH = 0x5406
    SET_QOS_BANDWIDTH = 0x5407
    QOS_LIMIT = 0x5408
    SET_QOS_LIMIT = 0x5409


class Cci(NamedTuple):
    """A request or a response (7.6.3); *background*: its operation continues in the background."""

    opcode: int
    payload: bytes = b""
    tag: int = 0
    response: bool = False
    code: int = Code.SUCCESS
    extended: int = 0
    background: bool = False

    def pack(self) -> bytes:
        """Encodes the message.  ValueError: the payload is longer than 64 KiB."""
        if len(self.payload) > PAYLOAD_BYTES:
            raise ValueError(f"{len(self.payload)} bytes: a payload has {PAYLOAD_BYTES} at most")
        length = len(self.payload) | (_BACKGROUND if self.background else 0)
        head = HEADER.pack(
            self.response,
            self.tag,
            self.opcode,
            length.to_bytes(3, "little"),
            self.code,
            self.extended,
        )
        return head + self.payload

    def answer(self, code: Code, payload: bytes = b"") -> Cci:
        """Makes the response, with the request's opcode and tag."""
        background = code is Code.BACKGROUND_STARTED
        return Cci(self.opcode, payload, self.tag, True, code, 0, background)


def unpack(message: bytes) -> Cci:
    """Decodes a message.  FramingError: no whole header, no such category, or a wrong length."""
    if len(message) < HEADER.size:
        raise FramingError(f"{len(message)} bytes: a CCI message has {HEADER.size} at least")
    category, tag, opcode, length, code, extended = HEADER.unpack_from(message)
    sizes = int.from_bytes(length, "little")
    payload = message[HEADER.size :]
    if category > 1 or sizes & 0x1FFFFF != len(payload):
        raise FramingError(
            f"category {category}, {sizes & 0x1FFFFF} bytes: a request, 0, or a response, 1, "
            f"with {len(payload)} bytes"
        )
    return Cci(opcode, payload, tag, bool(category), code, extended, bool(sizes & _BACKGROUND))


def bitmap(numbers: Iterable[int]) -> bytes:
    """Encodes numbers below 256 as bits."""
    return sum(1 << number for number in numbers).to_bytes(_BITMAP_BYTES, "little")


T = TypeVar("T", bound=NamedTuple)


class RecordLayout(Generic[T]):
    """A record of fixed size: *form* as in struct, little endian, and the tuple of its values."""

    def __init__(self, form: str, kind: type[T]) -> None:
        self._struct = Struct("<" + form)
        self._codes = [code for code in findall(r"\d*s|[A-Z]", form) if code]
        self._kind = kind
        self.size = self._struct.size

    def pack(self, value: T) -> bytes:
        """Encodes a record.  LocalError: a value does not fit."""
        try:
            return self._struct.pack(*value)
        except error as wrong:
            raise LocalError(self._misfit(value) or str(wrong), EINVAL) from wrong

    def _misfit(self, value: T) -> str:
        """Names the first number that does not fit."""
        for name, code, each in zip(value._fields, self._codes, value, strict=True):
            most = 256 ** calcsize("<" + code) - 1
            if isinstance(each, int) and not 0 <= each <= most:
                return f"{name} is {each}: choose 0 to {most}"
        return ""

    def unpack(self, data: bytes, at: int = 0) -> T:
        return self._kind(*self._struct.unpack_from(data, at))

    def unpack_all(self, data: bytes, at: int = 0, count: int | None = None) -> list[T]:
        """Decodes *count* records from *at* on; all if None."""
        if count is None:
            count = (len(data) - at) // self.size
        return [self.unpack(data, at + i * self.size) for i in range(count)]


class Identity(NamedTuple):
    """The answer of Identify (8.2.9.1.1); *most* is the largest message, as a power of 2."""

    vendor: int
    device: int
    subsystem_vendor: int
    subsystem: int
    serial: int
    most: int
    kind: int


class BackgroundStatus(NamedTuple):
    """The background status (8.2.9.1.2): bit 0 of *status*: in progress; above, percent
    complete."""

    status: int
    opcode: int
    code: int
    extended: int


class SwitchInfo(NamedTuple):
    """The answer of 7.6.7.1.1; masks have a bit for each port, and each virtual switch."""

    ingress_port: int
    ports: int
    virtual_switches: int
    active_ports: bytes
    active_virtual: bytes
    vppbs: int
    bound_vppbs: int
    decoders: int


class PhysicalPortInfo(NamedTuple):
    """7.6.7.1.2."""

    port: int
    state: int
    mode: int
    device: int
    modes: int
    max_width: int
    width: int
    speeds: int
    max_speed: int
    speed: int
    ltssm: int
    first_lane: int
    flags: int
    lds: int


class PortAction(NamedTuple):
    """7.6.7.1.3."""

    port: int
    action: int


class ConfigAccess(NamedTuple):
    """An access of 7.6.7.1.4: *where* is the register's offset in bits 11:0, byte enables in 15:12,
    and 1 in bit 23 for a write."""

    port: int
    where: bytes
    data: int


class LdConfigAccess(NamedTuple):
    """7.6.7.3.2."""

    port: int
    where: bytes
    ld: int
    data: int


class LdMemoryAccess(NamedTuple):
    """An access of 7.6.7.3.3: byte enables of the first DW in bits 15:12 of *where*, of the last in
    19:16."""

    port: int
    where: bytes
    ld: int
    length: int
    address: int


class VcsHead(NamedTuple):
    """7.6.7.2.1."""

    number: int
    state: int
    usp: int
    vppbs: int


class VppbInfo(NamedTuple):
    """7.6.7.2.1."""

    status: int
    port: int
    ld: int


class BindRequest(NamedTuple):
    """7.6.7.2.2."""

    vcs: int
    vppb: int
    port: int
    ld: int


class UnbindRequest(NamedTuple):
    """7.6.7.2.3."""

    vcs: int
    vppb: int
    option: int


class AerRequest(NamedTuple):
    """The request of 7.6.7.2.4: *instance* 0 is the upstream port, 1 the first vPPB.  Bits 4:0 of
    *error* are the error's bit; bit 31 is 1 if it is uncorrectable."""

    vcs: int
    instance: int
    error: int
    header: bytes


class Tunnelled(NamedTuple):
    """The head of a tunnelled message to the device at a port (7.6.7.3.1)."""

    target: int
    target_type: int
    size: int


class LdInfo(NamedTuple):
    """7.6.7.4.1."""

    memory_bytes: int
    lds: int
    telemetry: int


class AllocationHead(NamedTuple):
    """7.6.7.4.2."""

    lds: int
    granularity: int
    first: int
    listed: int


class Allocation(NamedTuple):
    """The steps of an LD in two ranges (7.6.7.4.2); LDs of this model have one."""

    steps: int
    second: int


class LdRange(NamedTuple):
    """A range of LDs, from *first* on."""

    listed: int
    first: int


class QosControl(NamedTuple):
    """7.6.7.4.4."""

    telemetry: int
    moderate_percent: int
    severe_percent: int
    sample_interval: int
    request_basis: int
    completion_interval: int


IDENTITY = RecordLayout("HHHHQBB", Identity)
BACKGROUND = RecordLayout("BxHHH", BackgroundStatus)
SWITCH = RecordLayout("BxBB32s32sHHB", SwitchInfo)
PORT = RecordLayout("BBBxBBBBBBBBBHB", PhysicalPortInfo)
PORT_ACTION = RecordLayout("BB", PortAction)
CONFIG = RecordLayout("B3sI", ConfigAccess)
LD_CONFIG = RecordLayout("B3sHxxI", LdConfigAccess)
LD_MEMORY = RecordLayout("B3sHHQ", LdMemoryAccess)
VCS = RecordLayout("BBBB", VcsHead)
VPPB = RecordLayout("BBBx", VppbInfo)
BIND = RecordLayout("BBBxH", BindRequest)
UNBIND = RecordLayout("BBB", UnbindRequest)
AER = RecordLayout("BBxxI32s", AerRequest)
TUNNEL = RecordLayout("BBH", Tunnelled)
LD_INFO = RecordLayout("QHB", LdInfo)
ALLOCATION_HEAD = RecordLayout("BBBB", AllocationHead)
ALLOCATION = RecordLayout("QQ", Allocation)
LD_RANGE = RecordLayout("BB", LdRange)
QOS = RecordLayout("BBBBHB", QosControl)
