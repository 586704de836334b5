# SPDX-License-Identifier: BSD-3-Clause
"""Captures what crosses a fabric: into files, through filters, as lines.  Knows captures and their
formats; never how the engine records, nor how a packet is made of a record.

Import what you use: `nupa.capture.filter` (Filter), `nupa.capture.view` (many packets as columns),
`nupa.capture.live` (a fabric as a source of packets), `nupa.capture.sinks` (files, lines),
`nupa.capture.loop` (from the one to the other), `nupa.capture.beside` (a process that captures
while a program runs).
"""
