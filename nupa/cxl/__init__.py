# SPDX-License-Identifier: BSD-3-Clause
"""The CXL switch and its memory, as registers and messages: what a driver and a manager would see.

Knows configuration space, component and device registers, mailbox commands, virtual switches and
how a host enumerates and programs them; never rings, queue pairs, or what the memory is used for.
"""
