# SPDX-License-Identifier: BSD-3-Clause
"""Reads what `nupa run --record` wrote.  Knows files and their records; never networks or work."""
