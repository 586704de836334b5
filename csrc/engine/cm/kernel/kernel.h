/* SPDX-License-Identifier: BSD-3-Clause
 * Connections with a kernel (csrc/kernel), whose connection manager speaks datagrams on QP 1.
 *
 *   peer.c    the process's end: datagrams by the channel to the kernel, as those of wires
 *   slot.c    the kernel of a host
 *   notes.c   the kernel's end: the connections of processes
 *
 * A datagram is the message CM_MAD.  timer: the GID of its ends; src_qpn: the sender's own. */
#ifndef NUPA_CM_KERNEL_H
#define NUPA_CM_KERNEL_H

#include "engine/cm/internal.h"
#include "engine/cm/wire/mad.h"

/* Whether the slot is a kernel's, for as long as it has it. */
static inline bool cm_is_kernel(const struct nupa_channel *channel)
{
	return nupa_load_acquire(&channel->peer_slot->gsi_qpn) != 0;
}

/* The slot of the kernel of a host that has a QP 1; 0: there is none. */
uint32_t cm_kernel_slot(const struct nupa_fabric *fabric, uint32_t host);
/* The channel to it, or NULL. */
struct nupa_channel *cm_kernel_channel(struct nupa_engine *engine, uint32_t host);
/* The kind of the address that a kernel's request names. */
enum cm_addr_kind cm_kernel_kind(const struct cm_wire *wire);
/* The message of an id (NULL: a refusal) to a kernel as a datagram; false: it is lost. */
bool cm_kernel_mad(struct nupa_engine *engine, const struct nupa_channel *channel,
		   struct nupa_cm_id *id, const struct nupa_msg *msg, const struct cm_wire *wire,
		   uint8_t mad[NUPA_CM_MAD_BYTES], uint8_t *gid_index);
/* A CM_MAD; false: nonsense. */
bool cm_kernel_receive(struct nupa_engine *engine, struct nupa_channel *channel,
		       const struct nupa_msg *msg, const uint8_t *payload);

#endif
