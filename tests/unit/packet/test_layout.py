# SPDX-License-Identifier: BSD-3-Clause
"""Layouts: values that do not fit are refused; the tables are consistent."""

from __future__ import annotations

import re

import pytest

from nupa.packet.tables.layout import Field, Layout
from nupa.packet.wireshark.tables import LAYOUTS

PAIR = Layout(
    "Pair",
    "x.pair",
    "a pair",
    "none",
    Field("small", 4, "Small"),
    Field("shifted", 12, "Shifted", shift=2),
)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"small": 16}, "small = 0x10 does not fit; it is at most 0xf"),
        ({"small": -1}, "small = -0x1 does not fit"),
        ({"shifted": 1 << 14}, "at most 0x3ffc"),
        ({"shifted": 6}, "a multiple of 4"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(values: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PAIR.encode(**values)


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="a pair has no field 'large'"):
        PAIR.encode(large=1)


def test_too_few_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="2 bytes are needed, 1 are there"):
        PAIR.decode(b"abc", at=2)


def test_fields_lie_from_the_highest_bit_on() -> None:
    assert PAIR.encode(small=0xA, shifted=0xBCD << 2) == b"\xab\xcd"
    assert PAIR.decode(b"\0\xab\xcd\0", at=1) == {"small": 0xA, "shifted": 0xBCD << 2}


def test_a_layout_of_broken_bytes_is_no_layout() -> None:
    with pytest.raises(AssertionError, match="12 bits"):
        Layout("Odd", "x", "odd", "none", Field("a", 12, "A"))


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_names_values_and_defaults_of_a_table_fit_their_fields(layout: Layout) -> None:
    names = [field.name for field in layout.fields]
    assert len(set(names)) == len(names)
    for field in layout.fields:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", field.name)
        assert re.fullmatch(r"nupa(\.[a-z0-9_]+)+", layout.abbrev_of(field))
        assert 0 <= field.default <= field.largest
        limit = field.bits if field.flags else 1 << field.bits
        assert all(0 <= value < limit for value in field.values or ())
        assert len(set((field.values or {}).values())) == len(field.values or {})


def test_a_filter_name_means_the_same_in_every_layout() -> None:
    seen: dict[str, tuple[object, ...]] = {}
    for layout in LAYOUTS:
        for field in layout.fields:
            if field.name.startswith("reserved"):
                continue
            what = (field.text, field.values, field.flags, field.hex, field.kind)
            assert seen.setdefault(layout.abbrev_of(field), what) == what
