# SPDX-License-Identifier: BSD-3-Clause
"""A manager of the soak: it asks for anything at random, over the socket, in a thread or in a
process of its own (`python -m tests.soak.fm.managers NAME SEED SECONDS`)."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from uuid import UUID

from nupa.base.errors import RemoteError
from nupa.cxl.fm.client.fabric_manager import FabricManager
from nupa.cxl.fm.dcd_messages import DcdOpcode
from nupa.cxl.fm.messages import FmOpcode
from nupa.cxl.function.cci import Code, CommandError
from nupa.cxl.media.dcd import Policy
from nupa.cxl.switch.physical_port import UnbindMode
from nupa.cxl.switch.vppb import Severity

from .rack import BLOCK, DCD_PORT, HOSTS, LDS, MLD_PORTS, OWN, SHARED, SLD_PORTS, STEP, VPPBS

#: Codes of CXL 3.1 8.2.8.4.5.1 that a switch and its devices have a reason for.
LEGAL = {
    Code.INVALID_INPUT,
    Code.UNSUPPORTED,
    Code.RETRY_REQUIRED,
    Code.BUSY,
    Code.INVALID_HANDLE,
    Code.INVALID_PHYSICAL_ADDRESS,
    Code.ABORTED,
    Code.INVALID_PAYLOAD_LENGTH,
    Code.RESOURCES_EXHAUSTED,
    Code.INVALID_EXTENT_LIST,
    Code.INVALID_LOG,
}
_TAGS = [UUID(int=number) for number in range(1, 5)]
_HARMLESS = [0x5400, 0x5401, 0x5403, 0x5405, 0x5406, 0x5408, 0x5500, 0x5600, 0x5601, 0x5603]


class SoakManager:
    """Operations by their weights, of *fm*."""

    def __init__(self, fm: FabricManager, seed: int) -> None:
        self._fm = fm
        self._random = Random(seed)
        self.operations: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self._table: list[tuple[Callable[[], None], int]] = [
            (self.bind, 30),
            (self.unbind, 14),
            (self.add, 20),
            (self.share, 8),
            (self.release, 14),
            (self.force, 8),
            (self.keep, 3),
            (self.let_go, 4),
            (self.look, 8),
            (self.allocate, 4),
            (self.reset, 1),
            (self.abort, 4),
            (self.serve, 3),
            (self.tunnel, 4),
            (self.report, 2),
            (self.nonsense, 6),
            (self.events, 4),
        ]

    def once(self) -> None:
        calls, weights = zip(*self._table, strict=True)
        (call,) = self._random.choices(calls, weights)
        self.operations[call.__name__] += 1
        try:
            call()
        except CommandError as refused:
            self.refusals[refused.code.name] += 1

    def run(self, until: Callable[[], bool]) -> None:
        while not until():
            self.once()

    # Operations

    def _number(self, limit: int) -> int:
        """Returns a number below *limit*, now and then one past it."""
        return self._random.randrange(limit + (self._random.random() < 0.05))

    def bind(self) -> None:
        port = self._random.choice((*SLD_PORTS, *MLD_PORTS, *MLD_PORTS))
        ld = self._number(LDS) if port in MLD_PORTS else None
        self._fm.bind(self._number(HOSTS), self._number(VPPBS), port, ld)

    def unbind(self) -> None:
        vcs, vppb = self._number(HOSTS), self._number(VPPBS)
        mode = self._random.choice((*UnbindMode, UnbindMode.SURPRISE, UnbindMode.SURPRISE))
        if mode is UnbindMode.LINK_DOWN:  # no link goes down soon
            self._fm.unbind(vcs, vppb, mode, wait=False)
            self._fm.abort()
        else:
            self._fm.unbind(vcs, vppb, mode)

    def abort(self) -> None:
        self._fm.abort()

    def add(self) -> None:
        region = self._random.choice((OWN, OWN, SHARED))
        tag = self._random.choice(_TAGS) if region == SHARED else UUID(int=self._number(3))
        policy = self._random.choice((Policy.FREE, Policy.CONTIGUOUS))
        size = self._random.randrange(1, 9) * BLOCK
        self._fm.capacity(DCD_PORT).add(self._number(LDS), region, size, tag=tag, policy=policy)

    def share(self) -> None:
        tag = self._random.choice(_TAGS)
        self._fm.capacity(DCD_PORT).add(self._number(LDS), SHARED, tag=tag, policy=Policy.SHARED)

    def _release(self, *, forced: bool) -> None:
        capacity, host = self._fm.capacity(DCD_PORT), self._number(LDS)
        extents = capacity.extents(host)
        if extents and self._random.random() < 0.8:
            extent = self._random.choice(extents)
            size = extent.size
            if not extent.sequence and size > BLOCK and self._random.random() < 0.5:
                size = BLOCK
            capacity.release(host, [(extent.dpa, size)], forced=forced)
        else:
            capacity.release(host, self._random.choice(_TAGS), forced=forced)

    def release(self) -> None:
        self._release(forced=False)

    def force(self) -> None:
        self._release(forced=True)

    def keep(self) -> None:
        self._fm.capacity(DCD_PORT).keep(self._random.choice(_TAGS))

    def let_go(self) -> None:
        self._fm.capacity(DCD_PORT).let_go(self._random.choice(_TAGS))

    def look(self) -> None:
        ports, switches = self._fm.ports(), self._fm.virtual_switches()
        ends = [(v.port, v.ld) for s in switches for v in s.vppbs if v.port is not None]
        assert len(ports) == self._fm.switch().ports
        assert len(switches) == HOSTS
        assert len({*ends}) >= len(ends) - 1  # one may have moved between two commands
        self._fm.capacity(DCD_PORT).tags()
        self._fm.logical_devices(self._random.choice(MLD_PORTS))

    def allocate(self) -> None:
        first = self._number(LDS)
        sizes = [self._number(3) * STEP for _ in range(self._random.randrange(1, 3))]
        self._fm.allocate(self._random.choice(MLD_PORTS), first, sizes)

    def reset(self) -> None:
        port = self._random.choice((*SLD_PORTS, *MLD_PORTS))
        if self._random.random() < 0.5:
            self._fm.reset(port)
            return
        self._fm.assert_reset(port)
        self._fm.assert_reset(port, False)

    def serve(self) -> None:
        port = self._random.choice(MLD_PORTS)
        self._fm.set_qos(port, self._fm.qos(port)._replace(severe_percent=self._number(120)))
        self._fm.set_bandwidth(port, self._number(LDS), [self._random.randrange(120)])

    def tunnel(self) -> None:
        opcode = self._random.choice((0x4000, 0x4100, 0x4200, 0x0300, 0x5600))
        self._fm.tunnel(self._random.choice(MLD_PORTS), opcode, ld=self._number(LDS))

    def report(self) -> None:
        vppb = None if self._random.random() < 0.2 else self._number(VPPBS)
        severity = self._random.choice(list(Severity))
        self._fm.generate_aer(self._number(HOSTS), vppb, self._random.randrange(32), severity)

    def nonsense(self) -> None:
        payload = self._random.randbytes(self._random.randrange(24))
        if self._random.random() < 0.5:
            self._fm.tunnel(self._random.choice(MLD_PORTS), self._random.choice(_HARMLESS), payload)
        else:
            opcode = self._random.randrange(1 << 16)
            if opcode not in {*FmOpcode, *DcdOpcode}:
                self._fm.request(opcode, payload, cci=self._random.random() < 0.5)

    def events(self) -> None:
        for event in self._fm.events(clear=True):
            assert event.text


def main() -> int:
    name, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    end = time.monotonic() + seconds
    error = ""
    with FabricManager.open(name) as fm:
        manager = SoakManager(fm, seed)
        try:
            manager.run(lambda: time.monotonic() > end)
        except (RemoteError, AssertionError) as wrong:
            error = repr(wrong)
    print(json.dumps([manager.operations, manager.refusals, error]))
    return int(bool(error))


if __name__ == "__main__":
    sys.exit(main())
