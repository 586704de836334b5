# SPDX-License-Identifier: BSD-3-Clause
"""Times, rates, sizes and probabilities as text: parsed, and printed so that they parse again."""

from __future__ import annotations

import errno
import re
from fractions import Fraction

from nupa.base.errors import LocalError

_NUMBER = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)(e[+-]?\d{1,3})?\s*(\D*?)\s*", re.IGNORECASE)
_TIMES_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "min": 60_000_000_000}
_SCALES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_SCALES = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
# "MB": how many bytes; units of bits come after those of bytes.
_RATES = {f"{scale}B": Fraction(n) for scale, n in {**_SCALES, **_BINARY_SCALES}.items()} | {
    f"{scale}{bit}": Fraction(n, 8) for scale, n in _SCALES.items() for bit in ("b", "bit")
}
_U64_MAX = (1 << 64) - 1
#: A probability of 1 as the segment has it (struct nupa_fault_entry).
ALWAYS = (1 << 32) - 1


def nanoseconds(value: float | str) -> int:
    """Parses seconds, or text with a unit ("2s", "50ms", "10us", "100ns", "1min"), to nanoseconds.

    LocalError: not a time, negative, or more than 64 bits hold.
    """
    if isinstance(value, str):
        number, unit = _split(value, "a time", "2s, 50ms, 10us or 100ns")
        if unit not in _TIMES_NS and number:
            raise _wrong(value, "a time", f"write its unit: {', '.join(_TIMES_NS)}")
        found = number and number * _TIMES_NS[unit]
    else:
        found = _fraction(value, "a time in seconds") * 10**9
    return _whole(found, value, "a time")


def bytes_per_s(value: float | str) -> int:
    """Parses bytes a second, or text with a unit ("10MB/s", "1GiB/s", "10Gb/s"), to bytes a second.

    LocalError: not a rate, less than 1 byte a second, or more than 64 bits hold.
    """
    if isinstance(value, str):
        number, unit = _split(value, "a rate", "10MB/s, 1GiB/s or 10Gb/s")
        per_second = unit.removesuffix("/s").removesuffix("ps").strip()
        if per_second not in _RATES:
            raise _wrong(value, "a rate", "write its unit: kB/s, MiB/s, GB/s; kb/s, Mb/s, Gbit/s")
        found = number * _RATES[per_second]
    else:
        found = _fraction(value, "a rate in bytes a second")
    rate = _whole(found, value, "a rate")
    if rate == 0:
        raise _wrong(value, "a rate", "at least 1 B/s; `drop` or `nupa port HOST down` stop all")
    return rate


def byte_count(value: int | str) -> int:
    """Parses bytes, or text with a unit ("4096", "64K", "64KiB", "1.5G"); units are powers of 1024.

    LocalError: not a size, a part of a byte, or more than 64 bits hold.

    >>> byte_count("64K"), byte_count("1.5GiB"), byte_count("7 B")
    (65536, 1610612736, 7)
    """
    if isinstance(value, int):
        return _whole(Fraction(value), value, "a size")
    number, unit = _split(value, "a size", "4096, 64K, 512M or 1G")
    letter = unit.removesuffix("B").removesuffix("i").upper()
    if unit not in ("", "B") and f"{letter}i" not in _BINARY_SCALES:
        raise _wrong(value, "a size", "write its unit: B, K, M, G, T, or KiB, MiB, GiB, TiB")
    found = number * _BINARY_SCALES.get(f"{letter}i", 1)
    if found.denominator != 1:
        raise _wrong(value, "a size", "write whole bytes")
    return _whole(found, value, "a size")


def probability(value: float | str) -> float:
    """Parses a number above 0 and at most 1, or text ("1%", "0.01").  LocalError: neither."""
    if isinstance(value, str):
        number, unit = _split(value, "a probability", "1% or 0.01")
        if unit not in ("", "%"):
            raise _wrong(value, "a probability", "write it as 1% or 0.01")
        found = number / 100 if unit else number
    else:
        found = _fraction(value, "a probability")
    if not 0 < found <= 1:
        raise _wrong(value, "a probability", "above 0 and at most 1, or 100%")
    return float(found)


def in_steps(chance: float) -> int:
    """Converts a probability to steps of 1 / ALWAYS, at least one of them."""
    return max(1, round(chance * ALWAYS))


def say_time(ns: int) -> str:
    """Prints a time as nanoseconds() parses it: 50000000 -> '50ms'."""
    for unit in ("s", "ms", "us"):
        scale = _TIMES_NS[unit]
        if ns >= scale and ns % (scale // 1000) == 0:
            return f"{_decimal(ns, scale)}{unit}"
    return f"{ns}ns"


def say_duration(ns: int) -> str:
    """Prints a measured time: three digits that matter, and a unit.

    >>> [say_duration(ns) for ns in (0, 999, 1_500, 67_108_864, 2_000_000_000)]
    ['0 ns', '999 ns', '1.50 µs', '67.1 ms', '2.00 s']
    """
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    if ns < 1_000:
        return f"{sign}{ns} ns"
    # A value that would be rounded up to 1000 of a unit is 1.00 of the next.
    scales = (("µs", 10**3), ("ms", 10**6), ("s", 10**9))
    unit, scale = next((one for one in scales[:2] if ns < one[1] * 1_000 - one[1] // 2), scales[2])
    value = ns / scale
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{sign}{value:.{decimals}f} {unit}"


def say_count(count: int, noun: str) -> str:
    """Prints a number with its noun: '1 packet', '2 packets'."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def say_rate(rate: int) -> str:
    """Prints a rate as bytes_per_s() parses it: 10000000 -> '10MB/s'."""
    for unit in ("T", "G", "M", "k"):
        scale = _SCALES[unit]
        if rate >= scale and rate % (scale // 1000) == 0:
            return f"{_decimal(rate, scale)}{unit}B/s"
    return f"{rate}B/s"


def say_bytes(size: int, space: str = "") -> str:
    """Prints a size as byte_count() parses it; *space* stands before the unit.

    >>> say_bytes(65536), say_bytes(1536, " "), say_bytes(65537, " ")
    ('64KiB', '1.5 KiB', '65537 B')
    """
    for unit, scale in reversed(_BINARY_SCALES.items()):
        if size >= scale and size * 100 % scale == 0:
            return f"{_decimal(size, scale)}{space}{unit}B"
    return f"{size}{space}B"


def say_probability(chance: float) -> str:
    """Prints as probability() parses it, in the fewest digits that mean the same: 0.01 -> '1%'."""
    digits = 3
    while in_steps(probability(text := f"{chance * 100:.{digits}g}%")) != in_steps(chance):
        digits += 1
    return text


def _decimal(value: int, scale: int) -> str:
    """Prints value / scale, exactly where three decimals suffice."""
    whole, rest = divmod(value, scale)
    return f"{whole}.{rest * 1000 // scale:03}".rstrip("0").rstrip(".")


def _split(text: str, what: str, examples: str) -> tuple[Fraction, str]:
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise _wrong(text, what, f"write it as {examples}")
    return Fraction(found[1] + (found[2] or "")), found[3]


def _fraction(value: float, what: str) -> Fraction:
    try:
        return Fraction(value)
    except (ValueError, OverflowError):  # not a number, or infinite
        raise _wrong(value, what, "write a number") from None


def _whole(found: Fraction, value: float | str, what: str) -> int:
    if not 0 <= found <= _U64_MAX:
        raise _wrong(value, what, "write 0 to 2^64 - 1 of the smallest unit")
    if 0 < found < 1:
        raise _wrong(value, what, "write 0, or at least 1 of the smallest unit")
    return round(found)


def _wrong(value: float | str, what: str, remedy: str) -> LocalError:
    return LocalError(f"{value!r} is not {what}: {remedy}", errno.EINVAL)
