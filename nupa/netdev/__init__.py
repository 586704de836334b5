# SPDX-License-Identifier: BSD-3-Clause
"""IP over the fabric: nupa_net0 in a network namespace for each host.

Knows namespaces, TAP devices, addresses, the pump's process and the state of `net up`; never how a
frame crosses the fabric: nupa.core attaches, csrc/netdev moves frames.  Import what you use:
`nupa.netdev.up` (up), `nupa.netdev.down` (down), `nupa.netdev.state` (what is up),
`nupa.netdev.namespace` (entering).
"""
