# SPDX-License-Identifier: BSD-3-Clause
"""The NUPA core, a memory-queue transport between processes: the Python face of csrc/engine.

Both upper faces attach here: nupa.verbs (the ibdevice) and nupa.netdev (the network interface).
csrc/engine moves the data; Python chooses, opens and looks.

* Segment: the shared memory of a fabric: hosts, ports, slots and rings (segment.py,
  open_fabric.py; place.py finds ports by name).
* Attachment: a process in a slot of the segment.  It is an RDMA device of a host, or a queue of
  the host's network interface (attachment.py).
* Channel: two rings between two attachments, one for each direction, opened at the first contact
  (channel.py).
* Ring: one producer, one consumer.  Lines of 64 bytes hold a message each, with up to 32 bytes of
  payload; a ring of bytes beside them takes larger payloads (csrc/segment/ring/ring.h).  Python
  sees how many lines were written (lines.py).
* Mover: NUPA's word for a way of moving bulk data from one attachment's memory to another's
  (mover.py).

Beside the data path: watch.py reads what attachments record, inject.py makes packets enter.
Knows attachments, channels, rings and movers; never QPs.
"""
