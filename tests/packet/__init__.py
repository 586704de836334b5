# SPDX-License-Identifier: BSD-3-Clause
"""Tests of captures against other programs: tshark, capinfos, scapy's reader and writer."""
