# SPDX-License-Identifier: BSD-3-Clause
"""Reads profiles.  Knows figures, units and the files; never networks or work."""
