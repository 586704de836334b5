# SPDX-License-Identifier: BSD-3-Clause
"""Measures between two hosts and reports it: `nupa demo`, `nupa perf`, `nupa vm demo`.

Knows what to run, TCP as the comparison, reports, tables and charts; never guests or the segment.
`suite` has the steps of a demo, `perf` one operation in C loops, `report` what all reports share.
"""
