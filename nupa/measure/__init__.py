# SPDX-License-Identifier: BSD-3-Clause
"""Runs real programs between two hosts and shows what they measured.

Knows how to start a pair of programs, perftest's and fio's output, TCP over loopback and over the
fabric as the comparison, tables and charts; reaches the fabric only through `nupa run`, `nupa net
exec`, `nupa.fabric`, `nupa.netdev` and `nupa.verbs`.
Shared by `nupa demo`, `benchmarks/` and `tests/programs`.
"""
