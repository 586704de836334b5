/* SPDX-License-Identifier: BSD-3-Clause
 * The hosts of wires in connection management: their addresses, and messages as datagrams. */
#ifndef NUPA_CM_WIRE_H
#define NUPA_CM_WIRE_H

#include "engine/cm/internal.h"
#include "engine/cm/wire/mad.h"
#include "segment/wire.h"

/* --- path.c: facts of the way to a wire's host --------------------------------------- */

/* The wire of a host and both of its addresses; false: it is an ordinary host, or its keeper is
 * gone. */
struct cm_way {
	uint32_t index; /* of the entry */
	uint32_t slot;  /* of the keeper */
	uint8_t local[16], remote[16];
	uint8_t mtu; /* enum ibv_mtu */
};
bool cm_way_to(const struct nupa_fabric *fabric, uint32_t host, struct cm_way *way);
/* The channel to the keeper, by which all that is of the wire's host is known; NULL: none. */
struct nupa_channel *cm_way_channel(struct nupa_engine *engine, uint32_t host);

/* Whether an address is a local one of a wire; whether the remote one: *host. */
bool cm_wire_has_local(const struct nupa_fabric *fabric, const struct sockaddr_storage *addr);
bool cm_wire_has_remote(const struct nupa_fabric *fabric, const struct sockaddr_storage *addr,
			uint32_t *host);
/* The local address towards a wire's host; false: it is of the other family. */
bool cm_wire_source(const struct cm_way *way, sa_family_t family, struct sockaddr_storage *addr);
/* Both addresses of a message are those that the other end knows. */
void cm_wire_addresses(const struct cm_way *way, struct cm_wire *wire);

/* --- numbers.c: communication ids ---------------------------------------------------- */

/* The id's number in datagrams, drawn at first; 0: no random numbers. */
uint32_t cm_number(struct nupa_cm_id *id);
struct nupa_cm_id *cm_number_find(const struct nupa_cm *cm, uint32_t number);

/* --- port.c -------------------------------------------------------------------------- */

/* A message of an id (NULL: a refusal) to the peer's id *to*, as a datagram; *owner* is different
 * for all that give numbers to ids at the way's local end.  False: no random numbers. */
bool cm_mad_to(struct nupa_cm_id *id, const struct cm_way *way, uint64_t owner,
	       enum cm_message message, uint8_t reason, uint32_t to, const struct cm_wire *wire,
	       uint8_t bytes[NUPA_CM_MAD_BYTES]);
/* A datagram that was read has the message in it handled.  *near*: of a kernel of this fabric. */
enum cm_taken {
	CM_TAKEN,
	CM_UNKNOWN, /* it is for an id that is not there, or no longer */
	CM_UNFIT,   /* it names QPs that cannot be */
};
enum cm_taken cm_take_mad(struct nupa_engine *engine, struct nupa_channel *channel,
			  const struct nupa_cm_mad *mad, bool near);

/* Sends a message of an id (NULL: a refusal) to the peer's id *to*.  False: the channel is none of
 * a wire. */
bool cm_wire_send(struct nupa_engine *engine, const struct nupa_channel *channel,
		  struct nupa_cm_id *id, enum cm_message message, uint8_t reason, uint32_t to,
		  const struct cm_wire *wire);

#endif
