/* SPDX-License-Identifier: BSD-3-Clause
 * For the keeper of a wire: the process that a datagram on QP 1 is for, and refusals for those that
 * are for none. */
#ifndef NUPA_CM_STEER_H
#define NUPA_CM_STEER_H

#include "engine/cm/wire/mad.h"
#include "segment/layout/limits.h"

struct nupa_fabric;

/* The low bits of our communication ids are the slot. */
#define NUPA_CM_NUMBER_SLOT(number) ((number) & ((1u << NUPA_SLOT_BITS) - 1))

enum nupa_cm_way {
	NUPA_CM_DROP,       /* no message, or one that names nobody */
	NUPA_CM_TO_SLOT,    /* for the process of *slot* */
	NUPA_CM_TO_SERVICE, /* for the listener on *port* of *space*: nupa_cm_listener */
	NUPA_CM_TO_NOBODY,  /* for a service that no rdma_cm has: to be refused */
};

struct nupa_cm_target {
	uint32_t slot;
	uint16_t space; /* enum rdma_port_space */
	uint16_t port;
	uint16_t pkey;
	bool ipv6;
};

/* An enum nupa_cm_way, and its facts in *target*. */
int nupa_cm_steer(const uint8_t *mad, uint32_t bytes, struct nupa_cm_target *target);
/* The slot of the program that listens there for requests from the host of a wire, or -ENOENT. */
int nupa_cm_listener(struct nupa_fabric *fabric, uint32_t wire_host,
		     const struct nupa_cm_target *target);
/* The answer where nobody listens, or where no process has that slot; false: none is due. */
bool nupa_cm_refuse(const uint8_t *mad, uint32_t bytes, uint8_t answer[NUPA_CM_MAD_BYTES]);
/* The rejection of a request with this id, by a program that has no id for it yet, as the kernel
 * rejects it when that program ends. */
void nupa_cm_reject_orphan(uint32_t remote_id, uint8_t mad[NUPA_CM_MAD_BYTES]);

#endif
