# SPDX-License-Identifier: BSD-3-Clause
"""The raw benchmarks run, and print numbers that can be true."""

from __future__ import annotations

import pytest

from nupa.measure import raw
from nupa.programs.cpus import pick_two
from nupa.programs.pair import ProgramError

needs_two_cpus = pytest.mark.skipif(pick_two() is None, reason="two CPUs are needed")


@needs_two_cpus
def test_tcp_has_latency_and_bandwidth_at_each_size() -> None:
    rows = raw.tcp([8, 65536], cpus=pick_two(), seconds=0.1)
    assert [row.size_bytes for row in rows] == [8, 65536]
    for row in rows:
        assert 0.1 < row.polling_us < 1e6
        assert 0.1 < row.blocking_us < 1e6
        assert 1e4 < row.bytes_per_s < 1e12


@needs_two_cpus
def test_a_cache_line_takes_less_than_a_system_call() -> None:
    line = raw.run("raw_cacheline", cpus=pick_two(), seconds=0.05)
    assert 1 < line["min_ns"] <= line["one_way_ns"]
    assert line["samples"] > 0


@needs_two_cpus
def test_a_program_that_fails_says_why() -> None:
    with pytest.raises(ProgramError, match="cannot pin to CPU 1023"):
        raw.run("raw_cacheline", cpus=(0, 1023))
    with pytest.raises(ProgramError, match="a number from 1 to 1073741824 was expected"):
        raw.run("raw_tcp", sizes=[0])


def test_a_program_that_is_not_installed_is_named() -> None:
    with pytest.raises(ProgramError, match=r"bin/raw_nothing is missing: `make build` installs it"):
        raw.run("raw_nothing")
