# SPDX-License-Identifier: BSD-3-Clause
"""PCI functions in parts: capabilities, decoders, mailboxes, interrupts, ports."""
