# SPDX-License-Identifier: BSD-3-Clause
"""Memory of others, used by load, store and atomics: whatever the link between.

Knows windows, requests for bytes and words, and in which order they are done; never queue pairs,
registers of CXL or packets.  Import what you use: `nupa.memory.access` (Access),
`nupa.memory.ualink` (Pod), `nupa.memory.nvlink` (Node).
"""
