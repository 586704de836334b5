# SPDX-License-Identifier: BSD-3-Clause
"""Regions, quotas and windows against a model with the same calls: no call does more, or less."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nupa.fabric import Fabric, NupaError, Region, Window
from nupa.topology.topology import SegmentConfig, star

T = TypeVar("T")
EXTENT = 4096
EXTENTS = 24
HOSTS = 3
ALL = frozenset(range(HOSTS))


def attempt(call: Callable[[], T]) -> tuple[T | None, int]:
    """Returns the result, and the errno of a failure, or 0."""
    try:
        return call(), 0
    except NupaError as error:
        return None, error.errno


@dataclass(eq=False)
class Known:
    """The expected state of a region."""

    region: Region
    host: int
    share: frozenset[int]
    content: bytearray
    windows: list[tuple[int, Window]] = field(default_factory=list)

    @property
    def extents(self) -> range:
        first = self.region.pieces[0] // EXTENT
        return range(first, first + -(-self.region.size // EXTENT))


class Pool(RuleBasedStateMachine):
    @initialize()
    def make(self) -> None:
        topology = star(HOSTS, "model")
        topology.segment = SegmentConfig(extent_bytes=EXTENT, pool_bytes=EXTENTS * EXTENT)
        self.fabric = Fabric(topology=topology)
        self.regions: list[Known] = []
        self.limits: list[int | None] = [None] * HOSTS
        self.lost: list[Window] = []
        self.ids: set[int] = set()

    def teardown(self) -> None:
        for window in [*self.lost, *(each for known in self.regions for _, each in known.windows)]:
            window.close()
        self.fabric.close()

    def used(self, host: int) -> int:
        return sum(len(known.extents) for known in self.regions if known.host == host) * EXTENT

    def fits(self, extents: int) -> bool:
        taken = {extent for known in self.regions for extent in known.extents}
        return any(
            not taken & set(range(first, first + extents)) for first in range(EXTENTS - extents + 1)
        )

    @rule(
        size=st.integers(1, 12 * EXTENT) | st.integers(1, 12).map(lambda n: n * EXTENT),
        host=st.sampled_from(sorted(ALL)),
        share=st.sets(st.sampled_from(sorted(ALL))),
        keep=st.booleans(),
    )
    def alloc(self, size: int, host: int, share: set[int], keep: bool) -> None:
        extents, limit = -(-size // EXTENT), self.limits[host]
        refusal = 0
        if limit is not None and self.used(host) + extents * EXTENT > limit:
            refusal = errno.EDQUOT
        elif not self.fits(extents):
            refusal = errno.ENOMEM
        region, why = attempt(
            lambda: self.fabric.pool.alloc(size, share=share, host=host, keep=keep)
        )
        assert why == refusal
        if region is None:
            return
        assert region.id not in self.ids
        self.ids.add(region.id)
        taken = {extent for known in self.regions for extent in known.extents}
        known = Known(region, host, frozenset(share - {host}), bytearray(size))
        assert not taken & set(known.extents)
        self.regions.append(known)

    @rule(pick=st.integers(0, 99), host=st.sampled_from(sorted(ALL)))
    def map(self, pick: int, host: int) -> None:
        if not self.regions:
            return
        known = self.regions[pick % len(self.regions)]
        window, why = attempt(lambda: self.fabric.host(host).map(known.region))
        assert why == (0 if host in known.share | {known.host} else errno.EACCES)
        if window is not None:
            known.windows.append((host, window))

    @rule(pick=st.integers(0, 99), close=st.booleans())
    def write_or_close(self, pick: int, close: bool) -> None:
        mapped = [each for each in self.regions if each.windows]
        if not mapped:
            return
        known = mapped[pick % len(mapped)]
        index = pick % len(known.windows)
        if close:
            known.windows.pop(index)[1].close()
            return
        at = pick * known.region.size // 100
        known.content[at] ^= 0xA5
        known.windows[index][1].write(at, bytes([known.content[at]]))

    @rule(pick=st.integers(0, 99), share=st.sets(st.sampled_from(sorted(ALL))))
    def share(self, pick: int, share: set[int]) -> None:
        if not self.regions:
            return
        known = self.regions[pick % len(self.regions)]
        wished = frozenset(share - {known.host})
        loses = any(host not in wished | {known.host} for host, _ in known.windows)
        _, why = attempt(lambda: setattr(known.region, "share", share))
        assert why == (errno.EBUSY if loses else 0)
        if not loses:
            known.share = wished

    @rule(pick=st.integers(0, 99), force=st.booleans())
    def free(self, pick: int, force: bool) -> None:
        if not self.regions:
            return
        known = self.regions[pick % len(self.regions)]
        _, why = attempt(lambda: known.region.free(force))
        assert why == (errno.EBUSY if known.windows and not force else 0)
        if why:
            return
        self.regions.remove(known)
        self.lost += [window for _, window in known.windows]

    @rule(
        host=st.sampled_from(sorted(ALL)),
        limit=st.none() | st.integers(0, 8).map(lambda n: n * EXTENT),
    )
    def limit(self, host: int, limit: int | None) -> None:
        self.fabric.pool.set_quota(host, limit)
        self.limits[host] = limit

    @invariant()
    def says_what_is_known(self) -> None:
        pool = self.fabric.pool
        found = {
            info.id: (info.host, frozenset(info.share), info.mapped, info.size)
            for info in pool.infos()
        }
        assert found == {
            known.region.id: (known.host, known.share, len(known.windows), known.region.size)
            for known in self.regions
        }
        assert list(pool.quotas().values()) == [
            (self.limits[host], self.used(host)) for host in range(HOSTS)
        ]
        for known in self.regions:
            for _, window in known.windows:
                assert not window.revoked
                assert window.read(0, known.region.size) == known.content
        for window in self.lost:
            assert window.revoked
            assert window.read(0, 64 if len(window) > 64 else 1).strip(b"\xff") == b""


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
