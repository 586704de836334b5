# SPDX-License-Identifier: BSD-3-Clause
"""Reads networks from files of other tools: a file a format.  Knows networks; never engines."""
