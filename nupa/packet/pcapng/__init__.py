# SPDX-License-Identifier: BSD-3-Clause
"""Capture files: pcapng and classic pcap.  No scapy."""
