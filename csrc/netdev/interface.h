/* SPDX-License-Identifier: BSD-3-Clause
 * One queue of a TAP device and its attachment: frames of the host to the fabric, frames of the
 * fabric to the host. */
#ifndef NUPA_INTERFACE_H
#define NUPA_INTERFACE_H

#include "netdev/coalesce.h"
#include "engine/net/net.h"

struct nupa_interface {
	struct nupa_fabric *fabric;
	struct nupa_net *net;
	int fd;
	uint32_t mtu_bytes;
	bool is_tap;
	uint8_t *room; /* where the next frame goes */
	struct nupa_coalesced
	    open; /* datagrams that lie there already, which the next one may join */
	uint32_t open_host;
	bool coalesces;              /* the kernel takes coalesced frames, and so does this one's */
	bool ready;                  /* it may have more */
	bool blocked;                /* a frame of it waits, for room or its rate */
	bool muted;                  /* the pump does not look for more, until it may go */
	bool lost;                   /* its device is gone */
	bool fenced;                 /* its attachment is: by the engine, under its lock */
	int wake;                    /* the pump's, written when it is fenced */
	struct nupa_interface *next; /* of the same pump */
};

/* Takes over the descriptor and attaches; *wake*: an eventfd. 0, or a negative errno with *why*
 * filled: then the descriptor is the caller's. */
int nupa_interface_open(struct nupa_interface *interface, struct nupa_fabric *fabric, uint32_t host,
			uint32_t queue, struct nupa_net_siblings *siblings, int fd,
			uint32_t mtu_bytes, int wake, char *why, size_t why_bytes);
void nupa_interface_close(struct nupa_interface *interface);
/* Reads a batch and sends it, and lets receivers that are siblings take it. */
void nupa_interface_turn(struct nupa_interface *interface);

#endif
