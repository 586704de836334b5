# SPDX-License-Identifier: BSD-3-Clause
"""Answers and how they are shown: text, JSON, plots and timelines.  Knows no engine."""
