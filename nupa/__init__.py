# SPDX-License-Identifier: BSD-3-Clause
"""NUPA: software RDMA over an emulated CXL fabric, on any Linux machine.

Knows its version; imports nothing, so that `nupa run` starts at once.  Import what you use:
`nupa.fabric` (topologies, fabrics, hosts), `nupa.verbs` (pyverbs' names and behaviour).
"""

__version__ = "0.1.0"
