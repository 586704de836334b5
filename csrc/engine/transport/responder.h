/* SPDX-License-Identifier: BSD-3-Clause
 * The responder's files: answers that it owes, receives that it fills. */
#ifndef NUPA_RESPONDER_H
#define NUPA_RESPONDER_H

#include "engine/transport/xrc.h"

void nupa_responder_ack(struct nupa_qp *qp);
/* False: no memory for answers to READs and atomics. */
bool nupa_responder_may_answer(struct nupa_qp *qp);

static inline struct nupa_job *nupa_responder_job(const struct nupa_qp *qp, uint32_t index)
{
	return &qp->answers->jobs[index % NUPA_RD_ATOMIC_MAX];
}

/* With the last byte last; false: memory is not there. */
static inline bool nupa_responder_copy(void *to, const void *from, size_t bytes, bool on_demand)
{
	if (unlikely(on_demand))
		return nupa_memory_copy(to, from, bytes);
	return nupa_copy_in_order(to, from, bytes) == NUPA_REACH_DONE;
}

/* Owes the response; false: there are too many, and the QP is in error. */
bool nupa_responder_add_job(struct nupa_qp *qp, const struct nupa_job *job);
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
/* Whether the requester is in this incarnation now, and its P_Key matches: then it is the one that
 * we answer. */
enum nupa_meeting {
	NUPA_MET,
	NUPA_MET_STALE,    /* it was reset since, or is another one */
	NUPA_MET_STRANGER, /* it is of another partition */
};
enum nupa_meeting nupa_responder_meet_incarnation(struct nupa_qp *qp,
						  const struct nupa_channel *channel,
						  uint32_t incarnation);
/* Where nothing came of the partner yet: answers are for it as it is now. */
void nupa_responder_meet(struct nupa_qp *qp);
bool nupa_receive_send(struct nupa_qp *qp, const struct nupa_msg *msg, const uint8_t *payload);
void nupa_receive_datagram(struct nupa_qp *qp, struct nupa_channel *channel,
			   const struct nupa_msg *msg, const uint8_t *payload);
/* The GRH that precedes the payload of a received datagram.  class_flow: traffic class << 20 | flow
 * label. */
void nupa_grh_fill(uint8_t grh[NUPA_GRH_BYTES], uint32_t class_flow, uint32_t bytes,
		   uint8_t hop_limit, const uint8_t sgid[16], const uint8_t dgid[16]);
/* A datagram that has passed all checks, into the next receive.  from: in whose channel the payload
 * lies; NULL: it is ours.  False: lost. */
bool nupa_receive_deliver(struct nupa_qp *qp, const struct nupa_msg *msg, const uint8_t *payload,
			  const uint8_t grh[NUPA_GRH_BYTES], struct nupa_channel *from);
void nupa_receive_taken(struct nupa_qp *qp);
void nupa_receive_complete(struct nupa_qp *qp, uint64_t wr_id, enum ibv_wc_status status,
			   const struct nupa_msg *msg, uint64_t bytes, uint32_t opcode);

/* backlog.c */
/* A message that has passed all checks but that of a receive.  True: it is in the backlog, or was
 * dropped and counted; false: it goes on.  grh: UD. */
bool nupa_backlog_take(struct nupa_qp *qp, const struct nupa_channel *channel,
		       const struct nupa_msg *msg, const uint8_t *payload, const uint8_t *grh);
typedef void nupa_deliver(struct nupa_qp *qp, const struct nupa_msg *msg, const uint8_t *payload,
			  const uint8_t *grh);
/* Delivers messages for which there is a receive, and drops those that have waited for too long.
 * `polled` is as for nupa_backlog_run. */
void nupa_backlog_offer(struct nupa_qp *qp, const struct nupa_cq *polled, nupa_deliver *deliver);

#endif
