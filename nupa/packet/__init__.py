# SPDX-License-Identifier: BSD-3-Clause
"""Shows what crosses a fabric as packets.  Knows formats and captures; never moves data itself.

Importing this imports nothing, neither scapy (1 s) nor the engine.  Import what you use:
`nupa.packet.scapy.transport` (scapy layers of InfiniBand and RoCE), `nupa.packet.scapy.cm` (MADs,
connection management), `nupa.packet.scapy.inject` (packets made by hand enter a fabric),
`nupa.packet.fast` (headers of a whole capture at once, without scapy). NUPA's own formats: `link`
(scapy layer of the common header), over it `tlp` (PCIe), `cxl_mem`, `cxl_cache` and `queue`, and
`sniff` (scapy's sniff on a fabric); without scapy `record` (the header), `records` (a whole capture
of them at once), `*_tables` (each format as a table), `split` and `encode` (which TLPs and messages
an access becomes, and their bytes), `pcapng` (capture files) and `dissector` (Wireshark's).
"""
