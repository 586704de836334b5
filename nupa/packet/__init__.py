# SPDX-License-Identifier: BSD-3-Clause
"""Decodes and builds the packets of captures.  Knows formats; never a live fabric's data path.

Importing this package imports nothing: scapy takes a second, and the engine is not always there.

* `tables`: each format as a table of fields; no scapy, no engine
* `pcapng`: reads and writes capture files
* `decode`: headers of a whole batch of packets as columns, in C (`fast`, `records`)
* `scapy`: layers of InfiniBand and RoCE (`transport`, `routing`, `cm`) and of NUPA's records
  (`link`, `tlp`, `cxl_mem`, `cxl_cache`, `queue`); `sniff` and `inject` on a fabric
* `wireshark`: the dissector
"""
