/* SPDX-License-Identifier: BSD-3-Clause
 * Attachments as the controller sees them, and their counts. */
#ifndef NUPA_SLOT_COUNTERS_H
#define NUPA_SLOT_COUNTERS_H

#include "segment/segment.h"

/* cffi: begin */
struct nupa_slot_info {
	uint32_t slot, state, epoch, pid, uid, host;
	uint32_t qps, mrs;  /* in use now */
	uint32_t alive;     /* the process exists */
	uint32_t net_queue; /* it is this queue, + 1, of its host's network interface; else 0 */
	char comm[16];
};
/* 0, or -ENOENT if the slot is free. */
int nupa_fabric_slot(struct nupa_fabric *fabric, uint32_t slot, struct nupa_slot_info *info);

struct nupa_flow_info {
	uint64_t xmit_bytes, xmit_packets, rcv_bytes, rcv_packets, xmit_wait, xmit_discards;
};
/* Counts of the slot's owner between its host and *host*; a free slot gives zeros. */
int nupa_fabric_flow(struct nupa_fabric *fabric, uint32_t slot, uint32_t host,
		     struct nupa_flow_info *info);
/* Of a slot that is a queue of a network interface; any other gives zeros. */
int nupa_fabric_net_counters(struct nupa_fabric *fabric, uint32_t slot,
			     struct nupa_net_counters *counters);
/* Counts of attachments that are gone between *from*, their host, and *to*. */
int nupa_fabric_past_flow(struct nupa_fabric *fabric, uint32_t from, uint32_t to,
			  struct nupa_flow_info *info);
/* Counts of messages that attachments to *host* dropped, repeated or refused: those there are and
 * those that are gone, added.  One that goes meanwhile may be left out. */
int nupa_fabric_hw_counters(struct nupa_fabric *fabric, uint32_t host,
			    struct nupa_hw_counters *counters);
/* The mover from one slot to another: enum nupa_mover, or -ENOENT where no channel is open. */
int nupa_fabric_mover(struct nupa_fabric *fabric, uint32_t from, uint32_t to);
/* cffi: end */

#endif
