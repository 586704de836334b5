/* SPDX-License-Identifier: BSD-3-Clause
 * A packet under judgement, for the files that judge it: inject_judge.c, inject_answer.c. */
#ifndef NUPA_INJECT_INTERNAL_H
#define NUPA_INJECT_INTERNAL_H

#include "engine.h"
#include "inject.h"
#include "inject_packet.h"

struct nupa_judged {
	struct nupa_engine *engine;
	uint32_t from; /* slot of the injector */
	const struct nupa_packet *packet;
	struct nupa_qp *qp;
	struct nupa_inject_result *result;
};

static inline void nupa_judged_drop(struct nupa_judged *j, enum nupa_inject_reason reason)
{
	j->result->verdict = NUPA_INJECT_DROPPED;
	j->result->reason = reason;
}

static inline void nupa_judged_nak(struct nupa_judged *j, uint32_t syndrome)
{
	j->result->verdict = NUPA_INJECT_NAKED;
	j->result->syndrome = syndrome;
}

/* For watchers: before anything is done about it. */
static inline void nupa_judged_record(const struct nupa_judged *j, const struct nupa_msg *msg)
{
	if (unlikely(j->engine->trace & (NUPA_TRACE_TRANSPORT | NUPA_TRACE_TLP)))
		nupa_trace_received(j->engine, j->from, msg, j->packet->payload,
				    NUPA_TRACE_INJECTED);
}

/* inject_answer.c: an acknowledgement or a response, to a QP in a state that may wait for it. */
void nupa_judge_answer(struct nupa_judged *j);

#endif
