/* SPDX-License-Identifier: BSD-3-Clause
 * A packet under judgement, for the files that judge it. */
#ifndef NUPA_INJECT_INTERNAL_H
#define NUPA_INJECT_INTERNAL_H

#include "engine/inject/inject_engine.h"

/* An opcode is a service and an operation (IBTA table 38, A19). */
#define OPCODE_SERVICE 0xe0u
#define OPCODE_OPERATION 0x1fu
#define OPCODE_CNP 0x81u

enum {
	SERVICE_RC = 0x00,
	SERVICE_UC = 0x20,
	SERVICE_RD = 0x40,
	SERVICE_UD = 0x60,
	SERVICE_XRC = 0xa0,
};

enum nupa_operation {
	OPERATION_SEND_FIRST,
	OPERATION_SEND_MIDDLE,
	OPERATION_SEND_LAST,
	OPERATION_SEND_LAST_IMM,
	OPERATION_SEND_ONLY,
	OPERATION_SEND_ONLY_IMM,
	OPERATION_WRITE_FIRST,
	OPERATION_WRITE_MIDDLE,
	OPERATION_WRITE_LAST,
	OPERATION_WRITE_LAST_IMM,
	OPERATION_WRITE_ONLY,
	OPERATION_WRITE_ONLY_IMM,
	OPERATION_READ,
	OPERATION_READ_RESP_FIRST,
	OPERATION_READ_RESP_MIDDLE,
	OPERATION_READ_RESP_LAST,
	OPERATION_READ_RESP_ONLY,
	OPERATION_ACK,
	OPERATION_ATOMIC_ACK,
	OPERATION_CMP_SWP,
	OPERATION_FETCH_ADD,
	OPERATION_SEND_LAST_INV = 0x16,
	OPERATION_SEND_ONLY_INV,
	OPERATION_FLUSH = 0x1c,
	OPERATION_ATOMIC_WRITE,
};

struct nupa_judged {
	struct nupa_engine *engine;
	uint32_t from; /* slot of the injector */
	int wire_host; /* it came by this host's wire; -1: it was injected */
	const struct nupa_roce_packet *packet;
	const uint8_t *payload;
	struct nupa_qp *qp;
	struct nupa_inject_result *result;
};

static inline enum nupa_operation nupa_operation_of(const struct nupa_roce_packet *packet)
{
	return packet->opcode & OPCODE_OPERATION;
}

static inline void nupa_judged_drop(struct nupa_judged *j, enum nupa_inject_reason reason)
{
	j->result->verdict = NUPA_INJECT_DROPPED;
	j->result->reason = reason;
}

static inline void nupa_judged_count(struct nupa_judged *j, enum nupa_inject_reason reason,
				     uint64_t *counter)
{
	nupa_judged_drop(j, reason);
	nupa_count(counter, 1);
}

static inline void nupa_judged_nak(struct nupa_judged *j, uint32_t syndrome)
{
	j->result->verdict = NUPA_INJECT_NAKED;
	j->result->syndrome = syndrome;
}

/* For watchers, before anything is done about it; packets of wires are recorded as they come. */
static inline void nupa_judged_record(const struct nupa_judged *j, const struct nupa_msg *msg)
{
	if (unlikely(j->engine->trace & NUPA_TRACE_MOVES && j->wire_host < 0))
		nupa_trace_received(j->engine, j->from, msg, j->payload, NUPA_TRACE_INJECTED);
}

static inline bool nupa_has_receive(const struct nupa_qp *qp)
{
	const struct nupa_rq *rq = qp->srq ? &qp->srq->rq : &qp->rq;

	return rq->head != rq->tail;
}

/* inject_connected.c: a request, or an opcode that is none, to a QP of RC or UC that takes it. */
void nupa_judge_connected(struct nupa_judged *j);
/* inject_answer.c: an acknowledgement or a response, to a QP in a state that may wait for it. */
void nupa_judge_answer(struct nupa_judged *j);

#endif
