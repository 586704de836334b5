/* SPDX-License-Identifier: BSD-3-Clause
 * Management datagrams of connection management (IBTA 12.6 to 12.11) with the header of the RDMA IP
 * CM service (annex A11).  Pure functions: no engine, no segment, no socket.
 *
 *   mad.c       the table of fields; a datagram and its struct
 *   steer.c     for the keeper of a wire: the process that a datagram is for, and refusals
 *   message.c   the struct of a datagram, and the message that the engine's states understand
 *   numbers.c   communication ids that a wire's other side sees
 *   port.c      the engine's datagrams on their way out and in
 *
 * Every byte of a datagram is hostile. */
#ifndef NUPA_CM_MAD_H
#define NUPA_CM_MAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NUPA_CM_MAD_BYTES 256u
#define NUPA_CM_GSI_QPN 1u
#define NUPA_CM_GSI_QKEY 0x80010000u
#define NUPA_CM_PERMISSIVE_LID 0xffffu /* IBTA 4.1.3: of RoCE, which has none */

/* AttributeID, IBTA 12.6.3. */
enum nupa_cm_attribute {
	NUPA_CM_REQ = 0x10,
	NUPA_CM_MRA = 0x11,
	NUPA_CM_REJ = 0x12,
	NUPA_CM_REP = 0x13,
	NUPA_CM_RTU = 0x14,
	NUPA_CM_DREQ = 0x15,
	NUPA_CM_DREP = 0x16,
	NUPA_CM_SIDR_REQ = 0x17,
	NUPA_CM_SIDR_REP = 0x18,
};

enum nupa_cm_transport { /* IBTA 12.7.14 */
			 NUPA_CM_RC = 0,
			 NUPA_CM_UC = 1,
			 NUPA_CM_EXTENDED = 3, /* extended_transport says which */
};
#define NUPA_CM_XRC 1u /* extended_transport */

/* The message that a REJ rejects or an MRA acknowledges (IBTA 12.6.7.1, 12.6.6.1). */
enum nupa_cm_about { NUPA_CM_ABOUT_REQ = 0, NUPA_CM_ABOUT_REP = 1, NUPA_CM_ABOUT_OTHER = 2 };

#define NUPA_CM_DATA_MAX_BYTES 224u /* private data of DREP */
#define NUPA_CM_REASON_BYTES 72u    /* additional reject information */

/* The fields of any message; those that a message lacks are 0. */
struct nupa_cm_mad {
	uint64_t transaction;
	uint16_t attribute;
	uint32_t local_id, remote_id; /* of SIDR: the one request id, as the requester's */
	uint64_t service, ca_guid;
	uint32_t qkey, qpn, eecn, psn;
	uint8_t responder_resources, initiator_depth, flow_control;
	uint8_t remote_timeout, local_timeout, retries; /* of the CM */
	uint8_t transport, extended_transport;
	uint8_t retry_count, rnr_retry_count, srq;
	uint16_t pkey;
	uint8_t path_mtu; /* enum ibv_mtu */
	uint16_t local_lid, remote_lid;
	uint8_t local_gid[16], remote_gid[16];
	uint32_t flow_label;
	uint8_t rate, traffic_class, hop_limit, sl, subnet_local, ack_timeout;
	uint8_t about, status, information_bytes, service_timeout, target_ack_delay;
	uint16_t reason;
	uint8_t information[NUPA_CM_REASON_BYTES];
	/* A11.4; IPv4 addresses are in the last four bytes. */
	uint8_t ip_version;
	uint16_t source_port;
	uint8_t source[16], destination[16];
	uint8_t
	    data[NUPA_CM_DATA_MAX_BYTES]; /* private; behind the header of A11 if there is one */
};

/* A row of the table: where a field lies in messages of one kind. */
struct nupa_cm_field {
	uint16_t attribute;     /* 0: of each */
	uint16_t at, bits;      /* of the datagram; more than 64 bits: bytes */
	uint16_t offset, bytes; /* of the struct's member; bytes 0: none, the value is `least` */
	uint64_t least, most;
	const char *name;
};
extern const struct nupa_cm_field nupa_cm_fields[];
extern const uint32_t nupa_cm_n_fields;

/* The private data of a message that is the consumer's, in bytes; 0: no such message. */
uint32_t nupa_cm_data_bytes(uint16_t attribute);
void nupa_cm_mad_write(const struct nupa_cm_mad *mad, uint8_t to[NUPA_CM_MAD_BYTES]);
/* False: not a message of connection management, or a field has a value that it must not have.  REQ
 * and SIDR_REQ for services without the header of A11 have ip_version 0. */
bool nupa_cm_mad_read(const uint8_t *from, uint32_t bytes, struct nupa_cm_mad *mad);

/* --- services (A11.2) ---------------------------------------------------------------- */

#define NUPA_CM_SERVICE_PREFIX 1u /* bits 63 to 24 */

static inline bool nupa_cm_is_ip_service(uint64_t service)
{
	return service >> 24 == NUPA_CM_SERVICE_PREFIX;
}

#endif
