# SPDX-License-Identifier: BSD-3-Clause
"""Answers as text: perftest's or nccl-tests' columns, and why the time is what it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nupa.base.quantity import say_duration
from nupa.model.answer.answer import Answer
from nupa.model.answer.meaning import meaning

_MIB = 1 << 20  # perftest's MB
_SHARE_LEAST = 0.005
_STAGES_MOST = 12


def say_ns(ns: float) -> str:
    """Prints a time with three digits and a unit.

    >>> say_ns(4.26), say_ns(1720), say_ns(3.2e10)
    ('4.26 ns', '1.72 µs', '32.0 s')
    """
    return f"{ns:.3g} ns" if ns < 100 else say_duration(round(ns))


def say_gbytes(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:.3g} GB/s"


def say_energy(pico: float) -> str:
    """Prints pJ in a unit that suits.

    >>> say_energy(2.5e9), say_energy(3e3)
    ('2.5 mJ', '3 nJ')
    """
    for unit, scale in (("MJ", 1e18), ("kJ", 1e15), ("J", 1e12), ("mJ", 1e9), ("µJ", 1e6)):
        if pico >= scale:
            return f"{pico / scale:.3g} {unit}"
    return f"{pico / 1e3:.3g} nJ"


def text(answers: Sequence[Answer]) -> str:
    """Returns a line for each answer, in the columns of its kind, and why of the last one."""
    return "\n".join([*columns(answers), "", *why(answers[-1])])


# --- columns -------------------------------------------------------------------------------


def columns(answers: Sequence[Answer]) -> Iterator[str]:
    """Yields the table: perftest's, nccl-tests', fio's numbers, or a plain one."""
    form = answers[0].form
    if form == "latency":
        yield " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]"
        yield from (_latency(each) for each in answers)
    elif form == "bandwidth":
        yield " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]"
        yield from (_bandwidth(each) for each in answers)
    elif form == "collective":
        yield from _collectives(answers)
    elif form == "blocks":
        yield f"{'#bs':>10}  {'IOPS':>12}  {'BW[MB/sec]':>12}  {'lat[usec]':>12}  work"
        yield from (_blocks(each) for each in answers)
    else:
        yield f"{'#bytes':>14}  {'time[usec]':>14}  {'min[usec]':>14}  {'max[usec]':>14}  work"
        for each in answers:
            times = (f"{ns / 1e3:14.2f}" for ns in (each.time_ns, each.low_ns, each.high_ns))
            yield f"{each.bytes:14d}  {'  '.join(times)}  {each.work}"


def _latency(one: Answer) -> str:
    low, high, typical = (ns / 1e3 for ns in (one.low_ns, one.high_ns, one.time_ns))
    return f" {one.bytes:<7d} {one.messages:<10d} {low:<14.2f} {high:<14.2f} {typical:.2f}"


def _bandwidth(one: Answer) -> str:
    """Returns perftest's line: iterations of one end, and, with -b, the rates of both."""
    seconds, best = one.time_ns / 1e9, one.low_ns / 1e9
    iterations = one.messages // one.directions
    return (
        f" {one.bytes // one.messages:<10d} {iterations:<14d} {one.bytes / best / _MIB:<18.2f} "
        f"{one.bytes / seconds / _MIB:<20.2f} {one.messages / seconds / 1e6:<.6f}"
    )


def _blocks(one: Answer) -> str:
    iops = one.messages / one.time_ns * 1e9
    rate = one.algbw_bytes_per_s / 1e6
    return (
        f"{one.bytes // one.messages:10d}  {iops:12.0f}  {rate:12.1f}  {one.time_ns / 1e3:12.2f}  "
        f"{one.work}"
    )


def _nccl_head() -> Iterator[str]:
    """Yields nccl-tests' head: what it times out of place, then the same in place."""
    half = f"{'time':>7}  {'algbw':>6}  {'busbw':>6} #wrong"
    units = f"{'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}       "
    yield f"#{'':62}{'out-of-place':<25}{'':6}in-place"
    yield (f"#{'size':>11}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}  {half}  {half}")
    yield f"#{'(B)':>11}  {'(elements)':>12}  {'':8}  {'':6}  {'':6}  {units}  {units}".rstrip()


_FLOAT_BYTES = 4
#: nccl-tests counts elements of a rank's own part here.
_PARTED = ("all-gather", "reduce-scatter", "all-to-all")
_REDUCING = ("all-reduce", "reduce-scatter", "reduce")
_ROOTED = ("broadcast", "reduce")


def _collectives(answers: Sequence[Answer]) -> Iterator[str]:
    """Yields nccl-tests' columns; one prediction stands for both placements."""
    yield f"# {answers[0].ranks} ranks on {answers[0].network}; predicted, so nothing is checked"
    yield from _nccl_head()
    for each in answers:
        operation = each.work.partition(":")[0]
        redop = "sum" if operation in _REDUCING else "none"
        root = 0 if operation in _ROOTED else -1
        whole = each.bytes % _FLOAT_BYTES == 0
        kind, count = ("float", each.bytes // _FLOAT_BYTES) if whole else ("int8", each.bytes)
        if operation in _PARTED:
            count //= each.ranks
        us = each.time_ns / 1e3
        shown_us = f"{us:7.2f}" if us < 1e4 else f"{us:7.0f}"
        rates = (each.algbw_bytes_per_s / 1e9, each.busbw_bytes_per_s / 1e9)
        half = f"{shown_us}  {rates[0]:6.2f}  {rates[1]:6.2f}    N/A"
        yield (f"{each.bytes:12d}  {count:12d}  {kind:>8}  {redop:>6}  {root:6d}  {half}  {half}")
    mean = sum(each.busbw_bytes_per_s for each in answers) / len(answers) / 1e9
    yield f"# Avg bus bandwidth    : {mean:.4g}"


# --- why -----------------------------------------------------------------------------------


def why(one: Answer) -> Iterator[str]:
    """Yields the explanation of an answer: stages, algorithm, engine, links, and doubts."""
    yield f"why: {one.work} on {one.network}, {one.ranks} ranks: {say_ns(one.time_ns)}"
    yield from (f"  {line}" for line in _stages(one))
    rows = [("algorithm", f"{one.algorithm}: {one.reason}")]
    rows.append(("engine", f"{one.engine}: {one.engine_reason}"))
    if one.seed is not None:
        rows.append(("seed", str(one.seed)))
    rows.append(("range", _range(one)))
    if one.form != "latency" and one.bytes:
        rows.append(("rate", _rate(one)))
    if one.energy_pj:
        energy = f"{say_energy(one.energy_pj)} for media, switches and adapters"
        rows.append(("energy", energy))
    rows += [("links", line) for line in _links(one)]
    if one.check:
        rows.append(("check", _check(one)))
    rows += [("warning", warning) for warning in one.warnings]
    last = ""
    for name, line in rows:
        yield f"  {name if name != last else '':<10}{line}"
        last = name


def _stages(one: Answer) -> Iterator[str]:
    shares = list(one.shares().items())
    shown = [each for each in shares if each[1] >= _SHARE_LEAST][:_STAGES_MOST]
    width = max((len(name) for name, _ in shown), default=0)
    for name, share in shown:
        line = f"{share:5.0%}  {name:<{width}}  {say_ns(share * one.time_ns):>9}  {meaning(name)}"
        yield line.rstrip()
    rest = 1 - sum(share for _, share in shown)
    if len(shown) < len(shares):
        count = len(shares) - len(shown)
        yield f"{max(0.0, rest):5.0%}  {count} more below {_SHARE_LEAST:.1%} each"


def _range(one: Answer) -> str:
    if one.low_ns == one.high_ns:
        return "none: the figures of its profiles have no ranges"
    low, high = say_ns(one.low_ns), say_ns(one.high_ns)
    return f"{low} to {high}, from the ranges of the profiles' figures"


def _rate(one: Answer) -> str:
    found = f"algbw {say_gbytes(one.algbw_bytes_per_s)}"
    if one.form == "collective":
        found += f", busbw {say_gbytes(one.busbw_bytes_per_s)} (x {one.bus_factor:.4g})"
    return found


def _links(one: Answer) -> Iterator[str]:
    used = [link for link in one.links if link.bytes]
    for link in sorted(used, key=lambda link: -link.busy):
        each = "" if link.links == 1 else " each"
        yield (
            f"{link.name}: {link.links} x {_amount(link.bytes)}{each}, busy for {link.busy:.0%} of "
            "the time"
        )


def _amount(size: float) -> str:
    """Prints bytes in three digits and units of 1024."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size:.0f} B"


def _check(one: Answer) -> str:
    assert one.check
    both = f"{say_ns(one.check.packets_ns)} against {say_ns(one.check.time_ns)}"
    return (
        f"{one.check.sample}, packet by packet: {both}, {one.check.gap:+.1%}"
        f"{', ' * bool(one.check.note)}{one.check.note}; without the library's own time"
    )
