/* SPDX-License-Identifier: BSD-3-Clause
 * The responder's files: answers that it owes, receives that it fills. */
#ifndef NUPA_RESPONDER_H
#define NUPA_RESPONDER_H

#include "engine/queue/queue.h"

void nupa_responder_ack(struct nupa_qp *qp);
/* False: no memory for answers to READs and atomics. */
bool nupa_responder_may_answer(struct nupa_qp *qp);

static inline struct nupa_job *nupa_responder_job(const struct nupa_qp *qp, uint32_t index)
{
	return &qp->answers->jobs[index % NUPA_RD_ATOMIC_MAX];
}

/* An atomic was executed; and: a READ or atomic has come that was executed before. */
void nupa_responder_remember(struct nupa_qp *qp, const struct nupa_job *job);
void nupa_responder_answer_again(struct nupa_qp *qp, const struct nupa_msg *msg);
void nupa_responder_nak(struct nupa_qp *qp, enum nupa_nak syndrome);
void nupa_responder_nak_fatal(struct nupa_qp *qp, enum nupa_nak syndrome);
struct nupa_msg *nupa_responder_reserve(struct nupa_engine *engine, struct nupa_channel *channel,
					uint32_t dma_bytes, uint8_t **payload);
void nupa_responder_refuse(struct nupa_engine *engine, struct nupa_channel *channel,
			   const struct nupa_msg *msg, uint32_t incarnation);
/* A request of the QP's partner: executes it if it is its turn, and owes the answer.  False: it was
 * refused, or dropped. */
bool nupa_responder_take(struct nupa_qp *qp, const struct nupa_msg *msg, const uint8_t *payload);
/* Whether the partner is still the one that asked, and has not failed: its buffers are as they were
 * until now. */
bool nupa_responder_awaited(const struct nupa_qp *qp);
/* Where nothing came of the partner yet: answers are for it as it is now. */
void nupa_responder_meet(struct nupa_qp *qp);
bool nupa_receive_send(struct nupa_qp *qp, const struct nupa_msg *msg, const uint8_t *payload);
void nupa_receive_datagram(struct nupa_qp *qp, struct nupa_channel *channel,
			   const struct nupa_msg *msg, const uint8_t *payload);
/* A datagram that has passed all checks, into the next receive.  from: in whose channel the payload
 * lies; NULL: it is ours.  False: lost. */
bool nupa_receive_deliver(struct nupa_qp *qp, const struct nupa_msg *msg, const uint8_t *payload,
			  const uint8_t grh[NUPA_GRH_BYTES], struct nupa_channel *from);
void nupa_receive_taken(struct nupa_qp *qp);
void nupa_receive_complete(struct nupa_qp *qp, uint64_t wr_id, enum ibv_wc_status status,
			   const struct nupa_msg *msg, uint64_t bytes, uint32_t opcode);

#endif
