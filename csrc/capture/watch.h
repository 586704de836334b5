/* SPDX-License-Identifier: BSD-3-Clause
 * Watching a fabric: reads the records of attachments (csrc/engine/trace/trace.h), orders them, and
 * converts them to packets of the public formats (docs/packet.md).  Validates all that it reads. */
#ifndef NUPA_WATCH_H
#define NUPA_WATCH_H

#include "segment/segment.h"

/* cffi: begin */
struct nupa_watch;

/* One packet in the buffer of nupa_watch_read; its bytes follow, padded to a multiple of 8. */
struct nupa_watch_packet {
	uint64_t ts_ns; /* since 1970 */
	uint64_t transfer;
	uint32_t captured_bytes, original_bytes;
	uint32_t sequence; /* of this transfer at this level */
	uint16_t port;     /* of the fabric: where it was seen */
	uint16_t host;     /* the host at whose end of the route it was seen: source if outbound */
	uint16_t flags;    /* nupa.packet.tables.record.Flag */
	uint8_t level;     /* 1 tlp, 2 queue, 3 transport, 4 net, 5 cache:
			      nupa.packet.tables.record.Level */
	uint8_t kind;      /* nupa.packet.tables.record.Kind; a transport packet has ETHERNET */
	uint8_t direction; /* nupa.packet.tables.record.Direction */
	uint8_t reserved[3];
};

struct nupa_watch_counts {
	uint64_t records; /* read */
	uint64_t packets; /* made of them */
	uint64_t lost;    /* records: overwritten before they were read */
	uint64_t invalid; /* invalid records, from a hostile or dying process */
};

/* Starts to watch.  levels: bits 1 << (level - 1) of the levels above.  snap_bytes: of each packet,
 * headers included; 0 takes all.  ports: indices of the n_ports watched ports; n_ports 0: each
 * packet once, where its source sends it.  The caller holds the control lock.  All attachments that
 * live record when this returns, unless one is stopped.  NULL with errno (EUSERS: there are
 * NUPA_WATCHERS_MAX) and *why*. */
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
