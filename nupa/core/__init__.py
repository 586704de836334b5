# SPDX-License-Identifier: BSD-3-Clause
"""Moves messages between hosts.  Knows attachments, rings and movers; never QPs.

The rings and the moving are C (csrc/engine: channel.c, ring.h, mover.c); here is how they are
chosen, opened and seen.  Import what you use: `nupa.core.mover` (Mover), `nupa.core.attachment`
(attach), `nupa.core.channel` (channels), `nupa.core.watch` (Watch), `nupa.core.inject` (Injector),
`nupa.doctor.cma` (probe_cma).
"""
