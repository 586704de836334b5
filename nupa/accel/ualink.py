# SPDX-License-Identifier: BSD-3-Clause
"""Accelerators of a UALink pod, which read, write and change each other's memory by requests.

Requests from one accelerator to the same 256 bytes are executed in order, others in any order.  The
switch spreads requests, and memory is interleaved by 256 bytes (UALink 200G 1.0).  Nothing is
cached: coherence is software's.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from random import Random

from nupa.accel.controller import PodController
from nupa.accel.local import Buffer, as_access
from nupa.accel.requests import (
    ACCELERATORS,
    ADDRESSES,
    BEAT_BYTES,
    BLOCK_BYTES,
    TAGS,
    Operation,
    Request,
    RequestError,
    Response,
    Status,
)
from nupa.base.errors import LocalError, NupaError, RemoteError
from nupa.memory.access import WORD_BYTES, Access, Atomic, Bytes, WindowBase, check_range

PORTS = ACCELERATORS
#: Source, destination and block; the empty key where all requests have one order.
_Key = tuple[int, ...]


class Pod:
    """A switch with *ports*, and accelerators at them.

    *controller*: keeps virtual pods apart.  A request to another virtual pod has no route, and is
    answered that there is no such accelerator.

    Requests wait in a queue for each source, destination and 256 bytes there.  *random* chooses the
    next queue to serve.  Without it all requests are executed in the order of sending.  Nothing
    happens by itself: a wait for a response executes requests until it is there.

    >>> from random import Random
    >>> pod = Pod(random=Random(7))
    >>> one, two = pod.attach(1, bytearray(4096)), pod.attach(2, bytearray(4096))
    >>> window = one.window(two)
    >>> window.write(250, b"in two requests")
    >>> window.read(253, 3), pod.done
    (b'two', 3)
    """

    def __init__(
        self,
        *,
        ports: int = PORTS,
        random: Random | None = None,
        controller: PodController | None = None,
    ) -> None:
        self.ports = range(ports)
        #: Accelerator -> port: the switch's routes of requests and responses.
        self.routes: dict[int, int] = {}
        #: The number of answered requests.
        self.done = 0
        self.lock = threading.RLock()
        self._random = random
        self._controller = controller
        self._accelerators: dict[int, Accelerator] = {}
        self._queues: dict[_Key, deque[Request]] = {}
        self._waiting: list[_Key] = []

    def attach(
        self,
        number: int,
        memory: Access | Buffer,
        *,
        port: int | None = None,
        identity: Mapping[str, str] | None = None,
    ) -> Accelerator:
        """Attaches accelerator *number* with *memory*, at *port* or the first free one.

        *identity*: its vendor, serial, generation, which the pod's controller judges.
        LocalError: the number or the port is taken, or there is none; the memory's size is not a
        multiple of 64 bytes; the controller refuses the accelerator (EACCES).
        """
        with self.lock:
            if not 0 <= number < ACCELERATORS or number in self.routes:
                raise LocalError(f"accelerator {number}: take a free number below {ACCELERATORS}")
            taken = set(self.routes.values())
            if port is None:
                port = next((each for each in self.ports if each not in taken), len(self.ports))
            if port not in self.ports or port in taken:
                raise LocalError(f"port {port}: {len(taken)} of {len(self.ports)} are taken")
            found = Accelerator(self, number, as_access(memory))
            if self._controller is not None:
                self._controller.admit(number, identity or {})
            self._accelerators[number] = found
            self.routes[number] = port
        return found

    def detach(self, number: int) -> None:
        """Detaches an accelerator; its own requests are dropped.

        Requests to it are answered that there is no such accelerator.  LocalError: there is none.
        """
        with self.lock:
            if self._accelerators.pop(number, None) is None:
                raise LocalError(f"accelerator {number} is not attached")
            del self.routes[number]
            for key in self._waiting:
                self._queues[key] = deque(e for e in self._queues[key] if e.source != number)
            self._queues = {key: queue for key, queue in self._queues.items() if queue}
            self._waiting = [key for key in self._waiting if key in self._queues]
            if self._controller is not None:
                self._controller.left(number)

    def __contains__(self, accelerator: object) -> bool:
        number = accelerator.number if isinstance(accelerator, Accelerator) else -1
        return self._accelerators.get(number) is accelerator

    def queue(self, source: Accelerator, request: Request) -> None:
        """Queues a request that *source* sends.  RequestError: the source is not attached."""
        with self.lock:
            if source not in self:
                raise RequestError(f"accelerator {source.number} is not attached: it cannot send")
            key = (request.source, request.destination, request.block) if self._random else ()
            if key not in self._queues:
                self._queues[key] = deque()
                self._waiting.append(key)
            self._queues[key].append(request)

    def step(self) -> bool:
        """Executes one request and delivers its response.  False: none waits."""
        with self.lock:
            if not self._waiting:
                return False
            at = self._random.randrange(len(self._waiting)) if self._random else 0
            key = self._waiting[at]
            request = self._queues[key].popleft()
            if not self._queues[key]:
                del self._queues[key]
                self._waiting[at] = self._waiting[-1]
                self._waiting.pop()
            target = self._target(request)
            status, data = target.execute(request) if target else (Status.NO_ACCELERATOR, b"")
            self.done += 1
            source = self._accelerators[request.source]
            source.answered(Response(request.destination, request.tag, status, data))
            return True

    def _target(self, request: Request) -> Accelerator | None:
        """Returns the accelerator to which the switch has a route, when the request is executed."""
        controller = self._controller
        if controller is not None and not controller.reaches(request.source, request.destination):
            return None
        return self._accelerators.get(request.destination)

    def drain(self) -> None:
        """Executes all requests."""
        while self.step():
            pass


class Accelerator:
    """An accelerator of a pod: *number*, and the *memory* that it has for the others."""

    def __init__(self, pod: Pod, number: int, memory: Access) -> None:
        if len(memory) % BEAT_BYTES or not 0 < len(memory) <= ADDRESSES:
            raise LocalError(f"{len(memory)} bytes of memory: take a multiple of {BEAT_BYTES}")
        self.pod = pod
        self.number = number
        self.memory = memory
        #: Tags without a request, the longest unused one first.
        self._free = deque(range(TAGS))
        #: By tag: the response's handler (None: keep it), and the kept responses.
        self._sent: dict[int, Callable[[Response], None] | None] = {}
        self._responses: dict[int, Response] = {}

    def window(
        self, peer: Accelerator, offset: int = 0, size: int | None = None, *, posted: bool = False
    ) -> UalinkWindow:
        """Returns a window on *size* bytes of *peer*'s memory from *offset* on (to its end).

        Writes return when they are done.  *posted* writes return at once and are done in any order
        until `flush` returns.  LocalError: outside that memory, or another pod's.
        """
        if peer.pod is not self.pod:
            raise LocalError(f"accelerator {peer.number} is in another pod")
        size = len(peer.memory) - offset if size is None else size
        check_range(f"accelerator {peer.number}", offset, size, len(peer.memory))
        return UalinkWindow(self, peer, offset, size, posted)

    def tag(self) -> int:
        """Returns a free tag; executes requests until there is one.

        RequestError: all tags have responses that were not taken.
        """
        with self.pod.lock:
            while not self._free:
                if not self._sent or not self.pod.step():
                    raise RequestError(f"all {TAGS} tags have responses: take some")
            return self._free[0]

    def send(self, request: Request, then: Callable[[Response], None] | None = None) -> None:
        """Sends a request; *then* is called with the response, which `response` returns otherwise.

        RequestError: its source is another accelerator, or its tag is in use.
        """
        with self.pod.lock:
            if request.source != self.number:
                raise RequestError(f"accelerator {self.number} is not {request.source}, its source")
            if request.tag in self._sent or request.tag in self._responses:
                raise RequestError(f"tag {request.tag} of accelerator {self.number} is in use")
            self.pod.queue(self, request)
            if self._free[0] == request.tag:
                self._free.popleft()
            else:
                self._free.remove(request.tag)
            self._sent[request.tag] = then

    def response(self, tag: int) -> Response:
        """Returns the response with this tag; executes requests until it is there.

        RequestError: no such request was sent, or its response went to a handler.
        """
        with self.pod.lock:
            while tag in self._sent and self.pod.step():
                pass
            if tag not in self._responses:
                raise RequestError(f"accelerator {self.number}: tag {tag} waits for no response")
            self._free.append(tag)
            return self._responses.pop(tag)

    def answered(self, response: Response) -> None:
        """Receives a response from the switch."""
        then = self._sent.pop(response.tag)
        if then is None:
            self._responses[response.tag] = response
        else:
            self._free.append(response.tag)
            then(response)

    def execute(self, request: Request) -> tuple[Status, bytes]:
        """Executes a request on our memory, as its destination."""
        if request.address + request.size > len(self.memory):
            return Status.NO_ADDRESS, b""
        try:
            if request.command is Operation.READ:
                return Status.OKAY, self.memory.read(request.address, request.size)
            if request.command is Operation.WRITE:
                for at, end in request.runs():
                    self.memory.write(request.address + at, request.data[at:end])
                return Status.OKAY, b""
            was = self.memory.atomic(request.atomic, request.word, request.operand, request.compare)
            return Status.OKAY, was.to_bytes(WORD_BYTES, "little")
        except NupaError:  # closed, taken away, or not aligned: the owner's message is not sent
            return Status.LOST, b""


class _Transfer:
    """The requests of one transfer: how many are not answered, the bytes read, and the last
    failure."""

    def __init__(self) -> None:
        self.sent = self.pending = 0
        self.parts: dict[int, bytes] = {}
        self.failed = Status.OKAY

    def expect(self) -> Callable[[Response], None]:
        """Returns the handler of the next request's response."""
        index, self.sent, self.pending = self.sent, self.sent + 1, self.pending + 1
        return partial(self._land, index)

    def _land(self, index: int, response: Response) -> None:
        self.pending -= 1
        if response.status is not Status.OKAY:
            self.failed = response.status
        elif response.data:
            self.parts[index] = response.data


class UalinkWindow(WindowBase):
    """*size* bytes of *peer*'s memory at *offset*, by requests of *source*: see Accelerator.window.

    A transfer is split at multiples of 256 bytes; its parts may be done in any order.  RemoteError:
    a response says that a part was not done.
    """

    def __init__(
        self, source: Accelerator, peer: Accelerator, offset: int, size: int, posted: bool
    ) -> None:
        super().__init__(f"accelerator {peer.number} from {source.number}", size)
        self._source, self._peer = source, peer
        self._offset = offset
        #: The posted writes since the last flush.
        self._posted = _Transfer() if posted else None

    @property
    def revoked(self) -> bool:
        """Whether the memory was taken away, or an accelerator detached."""
        pod = self._source.pod
        return self._peer not in pod or self._source not in pod or self._peer.memory.revoked

    def read(self, offset: int, size: int) -> bytes:
        self._check(offset, size)
        transfer, whole = _Transfer(), bytearray()
        parts = list(_parts(self._offset + offset, size))
        for at, end in parts:
            self._send(transfer, Operation.READ, at, end)
        self._wait(transfer)
        for index, (at, end) in enumerate(parts):
            skipped = at % BEAT_BYTES
            whole += transfer.parts[index][skipped : skipped + end - at]
        return bytes(whole)

    def write(self, offset: int, data: Bytes) -> None:
        given = bytes(data)
        self._check(offset, len(given))
        transfer = self._posted or _Transfer()
        start = self._offset + offset
        for at, end in _parts(start, len(given)):
            self._send(transfer, Operation.WRITE, at, end, given[at - start : end - start])
        if self._posted is None:
            self._wait(transfer)

    def atomic(self, operation: Atomic, offset: int, operand: int = 0, compare: int = 0) -> int:
        self._check_word(offset, operand, compare)
        at, transfer = self._offset + offset, _Transfer()
        if at % WORD_BYTES:
            raise LocalError(f"{self.name}: this window does not begin at a word: no atomics")
        word = operand.to_bytes(WORD_BYTES, "little")
        self._send(transfer, Operation.ATOMIC, at, at + WORD_BYTES, word, operation, compare)
        self._wait(transfer)
        return int.from_bytes(transfer.parts[0], "little")

    def flush(self, offset: int = 0, size: int | None = None) -> None:
        """Waits until all posted writes are done.  RemoteError: one was not."""
        super().flush(offset, size)
        self._settle()

    def close(self) -> None:
        """Flushes and closes.  A second call does nothing."""
        if not self._closed:
            super().close()
            self._settle()

    def _settle(self) -> None:
        if self._posted is not None:
            posted, self._posted = self._posted, _Transfer()
            self._wait(posted)

    def _send(
        self,
        transfer: _Transfer,
        command: Operation,
        at: int,
        end: int,
        data: bytes = b"",
        atomic: Atomic = Atomic.LOAD,
        compare: int = 0,
    ) -> None:
        """Sends the beats with the bytes from *at* to *end*, of which *data* are written."""
        source, address = self._source, at - at % BEAT_BYTES
        size = -(-end // BEAT_BYTES) * BEAT_BYTES - address
        image, enables = b"", 0
        if data:
            image = data.rjust(end - address, b"\0").ljust(size, b"\0")
            enables = (1 << end - address) - (1 << at - address)
        with source.pod.lock:
            request = Request(
                command,
                source=source.number,
                destination=self._peer.number,
                tag=source.tag(),
                address=address,
                size=size,
                data=image,
                enables=enables,
                atomic=atomic,
                compare=compare,
            )
            source.send(request, transfer.expect())

    def _wait(self, transfer: _Transfer) -> None:
        """Executes requests until these are done."""
        with self._source.pod.lock:
            while transfer.pending and self._source.pod.step():
                pass
        if transfer.pending or transfer.failed is not Status.OKAY:
            why = transfer.failed if not transfer.pending else "the accelerator was detached"
            raise RemoteError(f"{self.name}: the transfer failed: {why}")


def _parts(start: int, size: int) -> Iterator[tuple[int, int]]:
    """Iterates over the requests for *size* bytes at *start*: first and last + 1 address of
    each."""
    at, end = start, start + size
    while at < end:
        stop = min(end, at - at % BLOCK_BYTES + BLOCK_BYTES)
        yield at, stop
        at = stop
