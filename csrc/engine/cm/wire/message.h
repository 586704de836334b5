/* SPDX-License-Identifier: BSD-3-Clause
 * Datagrams as the messages that connection management's states understand, and the reverse. */
#ifndef NUPA_CM_MESSAGE_H
#define NUPA_CM_MESSAGE_H

#include "engine/cm/internal.h"
#include "engine/cm/wire/mad.h"

/* The facts of a datagram that the engine's messages lack. */
struct cm_ends {
	uint64_t transaction, ca_guid;
	uint32_t local_id, remote_id;
	uint32_t remote_qpn; /* of DREQ */
	uint8_t local_gid[16], remote_gid[16];
	uint8_t path_mtu, ack_timeout;
	uint8_t about; /* enum nupa_cm_about, of REJ */
};

#define CM_HOP_LIMIT 64u

/* *wire* NULL: the message has none. */
void cm_mad_of(enum cm_message message, uint8_t reason, const struct cm_wire *wire,
	       const struct cm_ends *ends, struct nupa_cm_mad *mad);
/* The message, and its *reason* and *wire*; 0: not one for a program of rdma_cm. */
enum cm_message cm_message_of(const struct nupa_cm_mad *mad, uint8_t *reason, struct cm_wire *wire);

#endif
