# SPDX-License-Identifier: BSD-3-Clause
"""IP over the fabric: nupa_net0 in a network namespace for each host.

Knows namespaces, TAP devices, addresses, the pump's process and what `net up` has made; never how a
frame crosses the fabric: that is C (csrc/netdev).  Import what you use: `nupa.netdev.up` (up),
`nupa.netdev.down` (down), `nupa.netdev.state` (what is up), `nupa.netdev.namespace` (entering).
"""
