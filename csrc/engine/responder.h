/* SPDX-License-Identifier: BSD-3-Clause
 * What the responder's files share: answers that it owes, receives that it fills. */
#ifndef NUPA_RESPONDER_H
#define NUPA_RESPONDER_H

#include "engine.h"

void nupa_responder_ack(struct nupa_qp *qp);
void nupa_responder_nak(struct nupa_qp *qp, enum nupa_nak syndrome);
void nupa_responder_nak_fatal(struct nupa_qp *qp, enum nupa_nak syndrome);
struct nupa_msg *nupa_responder_reserve(struct nupa_engine *engine, struct nupa_channel *channel,
					uint32_t dma_bytes, uint8_t **payload);
void nupa_responder_refuse(struct nupa_engine *engine, struct nupa_channel *channel,
			   const struct nupa_msg *msg, uint32_t incarnation);
bool nupa_receive_send(struct nupa_qp *qp, const struct nupa_msg *msg, const uint8_t *payload);
/* Whether a SEND that was not yet taken is better taken later: no receive is posted, but the
 * program will see to that. */
bool nupa_receive_must_wait(struct nupa_engine *engine, struct nupa_channel *channel,
			    uint32_t dest_qpn);
void nupa_receive_datagram(struct nupa_qp *qp, struct nupa_channel *channel,
			   const struct nupa_msg *msg, const uint8_t *payload);
void nupa_receive_taken(struct nupa_qp *qp);
void nupa_receive_complete(struct nupa_qp *qp, uint64_t wr_id, enum ibv_wc_status status,
			   const struct nupa_msg *msg, uint64_t bytes, uint32_t opcode);

#endif
