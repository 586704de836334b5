# SPDX-License-Identifier: BSD-3-Clause
"""The CXL switch and its memory, as registers and messages: what a driver and a manager would see.

Knows configuration space, registers, mailbox commands, virtual switches, and hosts that enumerate
and program them; never rings, queue pairs, or the use of the memory.
"""
