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

/* That a packet holds at most: with UCX's headers, one of its messages over TCP (64 KiB). */
#define NUPA_PACKET_BYTES 65024u
#define NUPA_KEY_BYTES 256u /* of a window's key, at most */

/* A packet belongs to the carrier from `send` until the event `sent`. */
struct nupa_packet {
	struct nupa_packet *next; /* free for its owner */
	void *link;               /* the carrier's, while it has it */
	uint32_t bytes;
	uint32_t put_bytes; /* before it; its owner's */
	bool waits;         /* the carrier's */
	_Alignas(64) uint8_t data[NUPA_PACKET_BYTES];
};

struct nupa_carrier_events {
	/* A connection to that machine stands, as *link*, or *link* is the one that was asked for.
	 */
	void (*met)(void *arg, uint32_t machine, void *link);
	/* A packet came; its bytes are the carrier's, aligned as a packet's. */
	void (*received)(void *arg, uint32_t machine, void *link, const uint8_t *data,
			 uint32_t bytes);
	/* What was put before the packet has arrived; it goes now, and may be changed before.  For
	 * each packet, in order, also from within `send`. */
	void (*goes)(void *arg, uint32_t machine, struct nupa_packet *packet);
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
	/* Memory that other machines may put bytes into, and its key for them; NULL: packets only.
	 */
	void *(*window)(struct nupa_carrier *carrier, void *memory, size_t bytes,
			uint8_t key[NUPA_KEY_BYTES], uint32_t *key_bytes);
	void (*unwindow)(struct nupa_carrier *carrier, void *window);
	/* Another machine's window, until `lock` or the connection's end; NULL: it is none. */
	void *(*unlock)(struct nupa_carrier *carrier, void *link, const uint8_t *key,
			uint32_t key_bytes);
	void (*lock)(struct nupa_carrier *carrier, void *unlocked);
	/* Copies bytes to an address of that window.  They are read until the next packet of the
	 * connection goes, which arrives after them. */
	void (*put)(struct nupa_carrier *carrier, void *unlocked, const void *from, uint64_t to,
		    uint32_t bytes);
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
