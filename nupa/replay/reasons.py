# SPDX-License-Identifier: BSD-3-Clause
"""The reasons in the report why packets and requests are not played."""

BEGAN_BEFORE = "requests that began before the capture"
PACKETS_MISSING = "requests of which packets are missing in the capture"
UNSUPPORTED = "requests that are not replayed: {}"
BEHIND = "requests behind one that was refused"
LENGTHS = "requests whose lengths contradict each other"
LOST = "requests that never arrived, as the capture says"
MULTICAST = "datagrams to multicast groups"

RETRANSMISSION = "retransmissions and duplicates"
STRAY = "answers to what is not in the capture"
GAPS = "NAKs of lost packets"
OF_PACKETS = (RETRANSMISSION, STRAY, GAPS)  # counts of packets, not of requests
