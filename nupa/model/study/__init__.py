# SPDX-License-Identifier: BSD-3-Clause
"""Asks questions named by text, and several at once: comparisons, differences and sweeps.

Knows engines, answers and the grammars of works and networks; only commands and users know it.
"""
