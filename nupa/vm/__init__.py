# SPDX-License-Identifier: BSD-3-Clause
"""A machine of QEMU guests whose CXL memory is one shared file, the fabric's segment.

Knows topologies, QEMU's command line, guests' processes, their agents and what they boot from;
never what is in the segment.  `files` is what a machine keeps on disk, `boot` what guests boot
from, `agent` runs a command in a guest, `machine` starts and stops guests, `storage` measures
storage between two.
"""
