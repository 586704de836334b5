/* SPDX-License-Identifier: BSD-3-Clause
 * Watching a fabric: reads the records of attachments (csrc/engine/trace/trace.h), orders them, and
 * converts them to packets of the public formats (docs/packet.md).  Validates all that it reads. */
#ifndef NUPA_WATCH_H
#define NUPA_WATCH_H

#include "capture/expand/packet.h"
#include "segment/segment.h"

/* cffi: begin */
struct nupa_watch;

/* Starts to watch.  `levels` are bits 1 << (level - 1) of the levels in struct nupa_watch_packet.
 * `snap_bytes` is the limit for each packet, headers included; 0 takes all.  `ports` are the
 * indices of the n_ports watched ports.  With n_ports 0, each packet is taken once, where its
 * source sends it.  The caller holds the control lock.  All live attachments record when this
 * returns, except stopped ones.  Returns NULL with errno (EUSERS: there are NUPA_WATCHERS_MAX) and
 * *why*. */
struct nupa_watch *nupa_watch_open(struct nupa_fabric *fabric, uint32_t levels, uint32_t snap_bytes,
				   const uint16_t *ports, uint32_t n_ports, char *why,
				   size_t why_bytes);
/* Ends it; the caller holds the control lock. */
void nupa_watch_close(struct nupa_watch *watch);
/* Stops recording on behalf of this watch; what was recorded can still be read.  Same lock. */
void nupa_watch_stop(struct nupa_watch *watch);
/* Fills the buffer with packets in order of time, as many as there are and fit.  Returns the
 * bytes filled, and in *packets the number of packets. 0: nothing new; records younger than the
 * call wait for the next.  A packet is never split; with a buffer of 1 MiB or more each call
 * makes progress. */
size_t nupa_watch_read(struct nupa_watch *watch, void *buffer, size_t bytes, uint32_t *packets);
void nupa_watch_counts(const struct nupa_watch *watch, struct nupa_watch_counts *counts);
/* cffi: end */

#endif
