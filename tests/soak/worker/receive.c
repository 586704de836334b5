/* SPDX-License-Identifier: BSD-3-Clause
 * Steps of the peer's stream as they come in, each byte checked. */
#include "soak.h"

#include <errno.h>
#include <string.h>

/* Steps that a peer may be ahead of its last message that we know of. */
#define AHEAD 512u

void end_post_recv(struct end *end, uint32_t buffer)
{
	struct ibv_sge sge = { (uintptr_t)end->memory + PLACE_RECV + buffer * MESSAGE_MAX_BYTES,
			       MESSAGE_MAX_BYTES, end->mr->lkey };
	struct ibv_recv_wr *bad,
	    wr = { .wr_id = WR_ID(WR_RECV, end->id, buffer), .sg_list = &sge, .num_sge = 1 };

	if (ibv_post_recv(end->qp, &wr, &bad))
		give_up("end %u: ibv_post_recv failed", end->id);
}

static void check_invalidated(struct end *end, const struct ibv_wc *wc)
{
	if (wc->invalidated_rkey != end->invalidate_mr->rkey)
		wrong("end %u: key 0x%x invalidated, not 0x%x", end->id, wc->invalidated_rkey,
		      end->invalidate_mr->rkey);
	ibv_dereg_mr(end->invalidate_mr);
	end->invalidate_mr = ibv_reg_mr(worker.pd, end->memory + PLACE_INVALIDATE, 64,
					IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!end->invalidate_mr)
		give_up("ibv_reg_mr: %s", strerror(errno));
	/* Pages that the region of all shares, with traffic on them. */
	if (end->invalidate_number % 2 &&
	    ibv_rereg_mr(end->invalidate_mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
			 end->memory + PLACE_RECV, RECVS * (size_t)MESSAGE_MAX_BYTES, 0) &&
	    errno != EBUSY)
		give_up("ibv_rereg_mr: %s", strerror(errno));
	end->invalidate_number++;
}

static const uint8_t *window_of(const struct end *end, const struct step *step)
{
	return end->memory + PLACE_WINDOW + step->write % WINDOWS * MESSAGE_MAX_BYTES;
}

/* Whether a completion says what the step says. */
static bool is_of(const struct ibv_wc *wc, const struct step *step)
{
	bool imm = step->opcode == IBV_WR_SEND_WITH_IMM || step->writes;

	return wc->opcode == (step->writes ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV) &&
	       wc->byte_len == step->bytes && !(wc->wc_flags & IBV_WC_WITH_IMM) == !imm &&
	       (!imm || wc->imm_data == step->imm);
}

static struct step next_announced(struct stream *stream)
{
	struct step step;

	do
		step = stream_next(stream);
	while (!step.announces);
	return step;
}

static bool is_good(const struct end *end, const struct step *step, const struct ibv_wc *wc,
		    const uint8_t *buffer)
{
	const uint8_t *at = step->writes ? window_of(end, step) : buffer;

	return is_of(wc, step) && pattern_match(at, step->bytes, step->seed, 0) == step->bytes;
}

/* The same where packets of another WRITE come late, into a window that is used again.  What a SEND
 * brings is its own. */
static bool may_be(const struct end *end, const struct step *step, const struct ibv_wc *wc,
		   const uint8_t *buffer)
{
	return step->writes ? is_of(wc, step) : is_good(end, step, wc, buffer);
}

static bool came_late(const struct end *end, const struct ibv_wc *wc, const uint8_t *buffer)
{
	struct stream stream = end->in;

	for (uint32_t i = 0; i <= RECVS; i++) {
		const struct step step = next_announced(&stream);

		if (may_be(end, &step, wc, buffer))
			return true;
	}
	for (uint32_t i = 0; i < RECENT && i < end->received; i++)
		if (may_be(end, &end->recent[i], wc, buffer))
			return true;
	return false;
}

/* UC: what a peer sent before it died, or while this end was stopped, may be lost; what comes
 * behind it must be good.  On a network a message may come again. */
static bool is_behind_a_loss(const struct end *end, const struct ibv_wc *wc, const uint8_t *buffer)
{
	struct stream stream = end->in;

	for (uint32_t i = 0; !stream.reliable && i <= RECVS; i++) {
		const struct step step = next_announced(&stream);

		if (is_good(end, &step, wc, buffer))
			return i != 0;
	}
	return !stream.reliable && worker.network && came_late(end, wc, buffer);
}

/* Atomics of the peer, in its order. */
static void count_atomic(const struct step *step, uint64_t *adds, uint64_t *last_swap)
{
	if (step->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		*adds += step->seed;
	else if (step->opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
		*last_swap = step->seed;
}

void end_check_words(const struct end *end)
{
	struct stream stream = end->in;
	uint64_t adds = end->adds, last_swap = end->last_swap, add, swap;

	memcpy(&add, end->memory + PLACE_ADD, sizeof(add));
	memcpy(&swap, end->memory + PLACE_SWAP, sizeof(swap));
	for (uint32_t i = 0; i < AHEAD; i++) {
		const struct step step = stream_next(&stream);

		if (add == adds && swap == last_swap)
			return;
		count_atomic(&step, &adds, &last_swap);
	}
	wrong("end %u: its words are 0x%llx and 0x%llx, which no atomics of its peer's make, each "
	      "executed once",
	      end->id, (unsigned long long)add, (unsigned long long)swap);
}

bool end_receive(struct end *end, const struct ibv_wc *wc, const uint8_t *buffer)
{
	struct step step;

	if (is_behind_a_loss(end, wc, buffer))
		return false;
	for (step = stream_next(&end->in); !step.announces; step = stream_next(&end->in)) {
		count_atomic(&step, &end->adds, &end->last_swap);
		if (!step.writes)
			continue;
		if (!end->in.reliable &&
		    pattern_match(window_of(end, &step), step.bytes, step.seed, 0) != step.bytes)
			return false;
		end_check_bytes(end, &step, window_of(end, &step), step.seed, 0, "write");
	}
	board_log(LOG_RECEIVED, end->id, step.number, step.opcode, wc->byte_len, wc->opcode);
	if (is_of(wc, &step))
		end_check_bytes(end, &step, step.writes ? window_of(end, &step) : buffer, step.seed,
				0, "message");
	else
		wrong("end %u: step %llu (opcode %u, %u bytes, imm 0x%x) came as opcode %u, %u "
		      "bytes, flags 0x%x, imm 0x%x",
		      end->id, (unsigned long long)step.number, step.opcode, step.bytes, step.imm,
		      wc->opcode, wc->byte_len, wc->wc_flags, wc->imm_data);
	if (wc->wc_flags & IBV_WC_WITH_INV)
		check_invalidated(end, wc);
	end->recent[end->received++ % RECENT] = step;
	return true;
}
