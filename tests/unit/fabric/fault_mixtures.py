# SPDX-License-Identifier: BSD-3-Clause
"""Strategies of faults, and what it takes to have some of them at once.

Each fault is drawn with its seed: what hypothesis prints repeats a failure.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from hypothesis import strategies as st

from nupa.fabric import Fabric, Fault, Faulty

SEEDS = st.integers(0, (1 << 32) - 1)
FAULTS_MAX = 4
PLACES = st.sampled_from(["host0", "host1", "switch0/1", "switch0/2"])


def fault_of(options: dict[str, Any]) -> Fault:
    """Returns a fault with a name, so that hypothesis prints a call that makes it again."""
    return Fault(**options)


def _faults(kind: str, **options: st.SearchStrategy[Any]) -> st.SearchStrategy[Fault]:
    return st.fixed_dictionaries({"kind": st.just(kind), **options}).map(fault_of)


def _some(kind: str, most: float, **options: st.SearchStrategy[Any]) -> st.SearchStrategy[Fault]:
    """Draws faults that hit a part of all packets, at most *most*, or a few in a row after some."""
    part = {"probability": st.floats(most / 100, most)}
    burst = {"count": st.integers(1, 3), "after": st.integers(0, 60)}
    return st.one_of(
        _faults(kind, seed=SEEDS, **part, **options),
        _faults(kind, seed=SEEDS, **burst, **options),
    )


def _ms(most: float) -> st.SearchStrategy[float]:
    return st.floats(most / 100, most).map(lambda ms: ms / 1000)


#: Faults of a link or a switch on valid packets.  Reliable connections hide them.
LOSSY = st.one_of(
    _some("drop", 0.05),
    _some("duplicate", 0.5),
    _some("reorder", 0.2, duration=_ms(2)),
    _some("delay", 0.05, duration=_ms(1)),
    _some("corrupt", 0.2, duration=_ms(0.1)),
    _faults("bandwidth", rate=st.sampled_from(["200MB/s", "1GB/s", "10Gb/s"])),
)


#: Faults that stop everything for a moment, which a reliable connection hides, too.
BRIEF = st.one_of(
    *(
        _faults(
            kind, seed=SEEDS, count=st.integers(1, 2), after=st.integers(0, 60), duration=_ms(5)
        )
        for kind in ("flap", "stuck")
    )
)


#: A message is sent eight times (retry_cnt 7).  Bursts at one place may all hit it, one behind the
#: other, and faults by probability once more.
IN_A_ROW_MAX = 6


def mixtures(kinds: st.SearchStrategy[Fault] = LOSSY) -> st.SearchStrategy[list[tuple[str, Fault]]]:
    """Draws some of these at some places, which a connection with seven retries hides."""
    return st.lists(st.tuples(PLACES, kinds), min_size=1, max_size=FAULTS_MAX).filter(
        lambda mixture: sum(fault.count for _, fault in mixture) <= IN_A_ROW_MAX
    )


@contextmanager
def under(fabric: Fabric, mixture: Sequence[tuple[str, Fault]]) -> Iterator[list[Faulty]]:
    """Applies these faults in the block."""
    with ExitStack() as stack:
        yield [stack.enter_context(Faulty(fabric.port(at), fault)) for at, fault in mixture]


def wait_judged(faulty: Faulty, count: int, deadline_s: float = 10.0) -> None:
    """Waits until the fault has seen so many packets, or has ended."""
    end_s = time.monotonic() + deadline_s
    while not (entry := faulty.entries[0]).ended and entry.seen < count:
        assert time.monotonic() < end_s, entry
