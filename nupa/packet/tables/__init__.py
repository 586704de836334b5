# SPDX-License-Identifier: BSD-3-Clause
"""Layouts of packets and records as tables.  No scapy."""
