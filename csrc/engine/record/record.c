/* SPDX-License-Identifier: BSD-3-Clause
 * What calls of a program add to its recording. */
#include "engine/record/recorder.h"
#include "base/clock.h"
#include "engine/channel/channel.h"
#include "engine/core/qp.h"

#define MADE_IN_POST (UINT64_C(1) << 63) /* in a CQE's stamp */
#define MOVER_EVERY 64u
#define SMALL_BYTES 256u
#define AHEAD 4 /* records: two lines, which arrive while the program works */

/* Of this thread: its number (+ 1) in the process, and whether a WAIT was its last record. */
static _Thread_local uint16_t thread_number __attribute__((tls_model("initial-exec")));
_Thread_local bool nupa_record_waits __attribute__((tls_model("initial-exec")));
static uint16_t threads_seen;

uint64_t nupa_record_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc(); /* of one rate on all cores: constant_tsc, nonstop_tsc */
#elif defined(__aarch64__)
	uint64_t ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#else
	return nupa_clock_ns();
#endif
}

static uint16_t this_thread(void)
{
	while (unlikely(!thread_number)) /* 65,536 threads later it is 0 again */
		thread_number = __atomic_add_fetch(&threads_seen, 1, __ATOMIC_RELAXED);
	return thread_number;
}

/* The next record with all but its kind unset; NULL: the recording has ended. */
static inline struct nupa_record *begin(struct nupa_recorder *recorder, uint64_t ticks)
{
	struct nupa_record *record;

	if (unlikely(recorder->at == recorder->end)) {
		if (!recorder->at)
			return NULL;
		nupa_record_next_tail(recorder);
		if (!recorder->at)
			return NULL;
	}
	record = recorder->at;
	record->ticks = ticks;
	record->thread = this_thread();
	return record;
}

static inline void finish(struct nupa_recorder *recorder, struct nupa_record *record,
			  enum nupa_record_kind kind)
{
	nupa_store_release(&record->kind, (uint8_t)kind);
	recorder->at = record + 1;
	nupa_prefetch_write(record + AHEAD); /* beyond the tail: it does no harm */
}

/* --- calls --------------------------------------------------------------------------- */

uint64_t nupa_record_posting(const struct nupa_qp *qp, uint32_t bytes)
{
	struct nupa_recorder *recorder = qp->engine->recorder;

	if (qp == recorder->read_qp && bytes == recorder->read_bytes &&
	    ++recorder->unread < NUPA_RECORD_BEGIN_EVERY) {
		recorder->posting_ticks = recorder->last_ticks;
		return 0;
	}
	recorder->read_qp = bytes <= SMALL_BYTES ? qp : NULL;
	recorder->read_bytes = bytes;
	recorder->unread = 0;
	return recorder->posting_ticks = nupa_record_ticks();
}

static inline void put_post(struct nupa_recorder *recorder, const struct nupa_record *what)
{
	struct nupa_record *record = begin(recorder, what->ticks);

	if (unlikely(!record))
		return;
	record->took_ticks = what->took_ticks;
	record->qpn = what->qpn;
	record->peer = what->peer;
	record->bytes = what->bytes;
	record->opcode = what->opcode;
	record->flags = what->flags;
	record->mover = what->mover;
	finish(recorder, record, NUPA_RECORD_POST);
}

static uint8_t flags_of(const struct nupa_qp *qp, uint32_t send_flags)
{
	return (uint8_t)((send_flags & IBV_SEND_SIGNALED || qp->sq_sig_all ? NUPA_RECORD_SIGNALED
									   : 0u) |
			 (send_flags & IBV_SEND_INLINE ? NUPA_RECORD_INLINE : 0u) |
			 (send_flags & IBV_SEND_FENCE ? NUPA_RECORD_FENCE : 0u));
}

/* What all requests of a call that returns now have in common. */
static inline struct nupa_record posted(const struct nupa_qp *qp, uint64_t begun_ticks)
{
	uint64_t now_ticks = nupa_record_ticks();
	struct nupa_recorder *recorder = qp->engine->recorder;
	uint8_t flags = 0;

	if (begun_ticks) {
		recorder->read_took_ticks = nupa_ticks_between(begun_ticks, now_ticks);
	} else {
		begun_ticks = now_ticks - recorder->read_took_ticks;
		if (begun_ticks < recorder->last_ticks)
			begun_ticks = recorder->last_ticks;
		flags = NUPA_RECORD_AS_BEFORE;
	}
	nupa_record_waits = false;
	recorder->posting_ticks = 0;
	recorder->last_ticks = now_ticks;
	/* The line of the channel's header is shared with the peer: seldom. */
	if (unlikely(recorder->calls++ % MOVER_EVERY == 0) && qp->channel)
		recorder->mover = (uint8_t)nupa_load_relaxed(&qp->channel->tx.header->mover);
	if (unlikely(now_ticks > recorder->clock_ticks) && recorder->at != recorder->end)
		nupa_record_put_clock(recorder, now_ticks);
	return (struct nupa_record){
		.ticks = begun_ticks,
		.took_ticks = nupa_ticks_between(begun_ticks, now_ticks),
		.qpn = qp->ibv.qp_num,
		.flags = flags,
		.mover = recorder->mover,
	};
}

void nupa_record_posted(struct nupa_qp *qp, uint64_t begun_ticks, const struct ibv_send_wr *wr,
			const struct ibv_send_wr *end)
{
	struct nupa_record what = posted(qp, begun_ticks);
	uint8_t same_call = what.flags;

	for (; wr && wr != end; wr = wr->next) {
		uint64_t bytes = 0;

		for (int i = 0; i < wr->num_sge; i++)
			bytes += wr->sg_list[i].length;
		what.bytes = (uint32_t)bytes;
		what.peer = qp->type == IBV_QPT_UD ? wr->wr.ud.remote_qpn : 0;
		what.opcode = (uint8_t)wr->opcode;
		what.flags = flags_of(qp, wr->send_flags) | same_call;
		same_call = NUPA_RECORD_SAME_CALL;
		put_post(qp->engine->recorder, &what);
	}
}

void nupa_record_built(struct nupa_qp *qp, uint64_t begun_ticks, uint64_t first, uint64_t end)
{
	struct nupa_record what = posted(qp, begun_ticks);
	uint8_t same_call = what.flags;

	for (uint64_t index = first; index != end; index++) {
		const struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, index);

		what.bytes = wqe->length_bytes;
		what.peer = qp->type == IBV_QPT_UD ? wqe->dest_qpn : 0;
		what.opcode = wqe->opcode;
		what.flags = flags_of(qp, wqe->flags) | same_call;
		same_call = NUPA_RECORD_SAME_CALL;
		put_post(qp->engine->recorder, &what);
	}
}

void nupa_record_made(const struct nupa_recorder *recorder, struct nupa_cqe *cqe)
{
	if (unlikely(!recorder))
		return;
	if (recorder->posting_ticks)
		cqe->record_ticks = recorder->posting_ticks | MADE_IN_POST;
	else /* a poll's own: it is about to be taken, and no second reading is worth it */
		cqe->record_ticks = recorder->polls ? 0 : nupa_record_ticks();
}

void nupa_record_taken(struct nupa_recorder *recorder, const struct nupa_cq *cq, uint64_t first)
{
	uint64_t now_ticks;
	uint8_t same_call = 0, polls = 0;

	if (unlikely(!recorder))
		return; /* other threads still run while the process exits */
	/* R6 */
	if (nupa_record_waits) {
		recorder->last_ticks = nupa_record_ticks();
		polls =
		    (uint8_t)(recorder->vain_polls < UINT8_MAX ? recorder->vain_polls : UINT8_MAX);
	} else {
		same_call = NUPA_RECORD_AT_ONCE;
	}
	now_ticks = recorder->last_ticks;
	nupa_record_waits = false;
	for (uint64_t index = first; index != cq->head; index++) {
		const struct nupa_cqe *cqe = &cq->ring[index & cq->mask];
		uint64_t made_ticks =
		    cqe->record_ticks ? cqe->record_ticks & ~MADE_IN_POST : now_ticks;
		struct nupa_record *record = begin(recorder, now_ticks);

		if (unlikely(!record))
			return;
		record->took_ticks = nupa_ticks_between(made_ticks, now_ticks);
		record->qpn = cqe->qp_num;
		record->peer = cqe->src_qp;
		record->bytes = cqe->byte_len;
		record->opcode = cqe->opcode;
		record->status = cqe->status;
		record->polls = polls;
		record->flags =
		    same_call | (cqe->record_ticks & MADE_IN_POST ? NUPA_RECORD_MADE_IN_POST : 0);
		same_call |= NUPA_RECORD_SAME_CALL;
		finish(recorder, record, NUPA_RECORD_COMPLETION);
	}
}

void nupa_record_wait(struct nupa_recorder *recorder, bool polls)
{
	struct nupa_record *record;

	recorder->polls = polls;
	recorder->vain_polls++;
	if (nupa_record_waits)
		return;
	nupa_record_waits = true;
	recorder->vain_polls = 0;
	record = begin(recorder, nupa_record_ticks());
	if (record)
		finish(recorder, record, NUPA_RECORD_WAIT);
}

void nupa_record_qp(const struct nupa_qp *qp)
{
	struct nupa_recorder *recorder = qp->engine->recorder;
	struct nupa_record *record = begin(recorder, nupa_record_ticks());

	if (!record)
		return;
	record->qpn = qp->ibv.qp_num;
	record->peer = qp->dest_qpn;
	record->bytes = qp->dest_host;
	record->opcode = qp->type;
	finish(recorder, record, NUPA_RECORD_QP);
}
