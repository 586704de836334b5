/* SPDX-License-Identifier: BSD-3-Clause
 * A carrier takes packets from one trunk to another, in order, once.  It knows connections and
 * bytes, and nothing of fabrics.  UCX is one (ucx/ucx.c); tests have another.
 *
 * All calls come from the trunk's thread, and events from within `progress`. */
#ifndef NUPA_TRUNK_CARRIER_H
#define NUPA_TRUNK_CARRIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NUPA_PACKET_BYTES 65536u /* that a packet holds at most */

/* A packet belongs to the carrier from `send` until the event `sent`. */
struct nupa_packet {
	struct nupa_packet *next; /* free for its owner */
	void *link;               /* the carrier's, while it has it */
	uint32_t bytes;
	_Alignas(64) uint8_t data[NUPA_PACKET_BYTES];
};

struct nupa_carrier_events {
	/* A connection to that machine stands, as *link*, or *link* is the one that was asked for.
	 */
	void (*met)(void *arg, uint32_t machine, void *link);
	/* A packet came; its bytes are the carrier's, aligned as a packet's. */
	void (*received)(void *arg, uint32_t machine, void *link, const uint8_t *data,
			 uint32_t bytes);
	void (*sent)(void *arg, uint32_t machine, struct nupa_packet *packet, void *link);
	/* The connection has ended, or could not be made; the link is no more.  Not for links that
	 * were closed. */
	void (*lost)(void *arg, uint32_t machine, void *link, const char *reason);
};

struct nupa_carrier {
	const struct nupa_carrier_ops *ops;
	const struct nupa_carrier_events *events;
	void *arg; /* of the events */
};

struct nupa_carrier_ops {
	/* Begins a connection: `met` or `lost` will tell.  NULL: it cannot now. */
	void *(*connect)(struct nupa_carrier *carrier, uint32_t machine);
	void (*send)(struct nupa_carrier *carrier, void *link, struct nupa_packet *packet);
	/* Ends a connection at once; its packets come back by `sent`, by the next progress. */
	void (*close)(struct nupa_carrier *carrier, void *link);
	/* Returns whether anything happened. */
	bool (*progress)(struct nupa_carrier *carrier, uint64_t now_ns);
	/* Whether the thread may sleep until `fd` is readable. */
	bool (*arm)(struct nupa_carrier *carrier);
	int (*fd)(const struct nupa_carrier *carrier);
	uint32_t (*port)(const struct nupa_carrier *carrier);
	const char *(*name)(const struct nupa_carrier *carrier);
	/* All packets have come back then. */
	void (*free)(struct nupa_carrier *carrier);
};

#endif
