# SPDX-License-Identifier: BSD-3-Clause
"""Sizes as text: parsed, printed, refused."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nupa.base import quantity
from nupa.base.quantity import byte_count, say_bytes
from nupa.fabric import LocalError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("64K", 65536),
        ("1.5 GiB", 3 << 29),
        ("2TB", 2 << 40),
        ("7 B", 7),
        ("256M", 256 << 20),
        ("256MB", 256 << 20),
        ("256MiB", 256 << 20),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert byte_count(text) == size


@given(st.integers(0, (1 << 64) - 1) | st.integers(0, 1 << 20).map(lambda n: n << n % 41))
def test_sizes_read_back_as_they_are_said(size: int) -> None:
    assert byte_count(say_bytes(size)) == byte_count(say_bytes(size, " ")) == size


@pytest.mark.parametrize(
    ("size", "text"),
    [(1, "1 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**20, "1 MiB"), (2**31, "2 GiB")],
)
def test_sizes_are_in_binary_units(size: int, text: str) -> None:
    assert say_bytes(size, " ") == text


@pytest.mark.parametrize(
    "text", ["", "x", "M", "-1", "-1M", "1.5", "5Q", "1P", "1iB", "1KK", "99999999999T"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(LocalError, match="is not a size"):
        byte_count(text)


def test_doctests() -> None:
    result = doctest.testmod(quantity)
    assert result.attempted > 0
    assert result.failed == 0
