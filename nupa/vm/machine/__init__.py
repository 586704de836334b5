# SPDX-License-Identifier: BSD-3-Clause
"""Guests' processes: their command lines, the memory they share, start and stop."""
