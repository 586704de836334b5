# SPDX-License-Identifier: BSD-3-Clause
"""Runs real programs between two hosts and shows what they measured.

Knows how to start a pair of programs, perftest's output, TCP over loopback as the comparison,
tables and charts; reaches the fabric only through `nupa run`, `nupa.fabric` and `nupa.verbs`.
Shared by `nupa demo`, `benchmarks/` and `tests/programs`.
"""
