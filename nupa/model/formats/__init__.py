# SPDX-License-Identifier: BSD-3-Clause
"""Reads and writes works in the formats of others: GOAL, Chakra, captures.  Knows no engine."""
