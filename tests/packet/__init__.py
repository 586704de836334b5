# SPDX-License-Identifier: BSD-3-Clause
"""Tests of captures beside other programs: tshark, capinfos and scapy's own reader and writer."""
