# SPDX-License-Identifier: BSD-3-Clause
"""scapy layers of all that a capture shows, and packets made by hand."""
