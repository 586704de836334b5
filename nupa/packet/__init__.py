# SPDX-License-Identifier: BSD-3-Clause
"""Shows what crosses a fabric as packets.  Knows formats and captures; never moves data itself.

Importing this imports nothing, neither scapy (1 s) nor the engine.  Import what you use:
`nupa.packet.transport` (scapy layers of InfiniBand and RoCE), `nupa.packet.cm` (MADs, connection
management), `nupa.packet.fast` (headers of a whole capture at once, without scapy).
"""
