# SPDX-License-Identifier: BSD-3-Clause
"""The commands of a memory device, a file for each set: rows for a mailbox, and the state behind.

Knows payloads and what they change; never registers.  Sections are those of CXL 3.1.
"""
