# SPDX-License-Identifier: BSD-3-Clause
"""A machine of QEMU guests whose CXL memory is one shared file, the fabric's segment.

Knows topologies, QEMU's command line, guests' processes, their agents and what boots them; never
what is in the segment.  Import what you use: `nupa.vm.machine` (up, start, down), `nupa.vm.state`
(what is up), `nupa.vm.agent` (a command in a guest), `nupa.vm.topology`, `nupa.vm.boot`.
"""
