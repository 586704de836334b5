# SPDX-License-Identifier: BSD-3-Clause
"""Wires: hosts that are reached by RoCE v2 at an address.  Starts and asks their keepers; never
reads a packet."""
