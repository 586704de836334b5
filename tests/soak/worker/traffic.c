/* SPDX-License-Identifier: BSD-3-Clause
 * The traffic of a link: steps of our stream out, steps of the peer's stream in, each byte checked.
 * Our progress is written to the peer as credit. */
#include "soak.h"

#include <errno.h>
#include <string.h>

static uint64_t read_offset(const struct step *step)
{
	return step->bits % (MESSAGE_MAX_BYTES - step->bytes + 1);
}

static uint64_t check_of(const struct status *status)
{
	return mix(mix(status->received, status->invalidate), status->window);
}

/* The peer's last status, if it is whole. */
static struct status status_of(const struct end *end)
{
	const volatile uint64_t *at =
	    (const volatile uint64_t *)(void *)(end->memory + PLACE_STATUS);
	struct status status = { at[0], at[1], at[2], at[3] };

	if (status.check != check_of(&status))
		return (struct status){ 0 };
	return status;
}

static bool has_room(struct end *end, const struct step *step)
{
	struct status status = status_of(end);

	if (status.received > end->announced) {
		wrong("end %u: the peer received %llu messages of %llu", end->id,
		      (unsigned long long)status.received, (unsigned long long)end->announced);
		return false;
	}
	if (status.received > end->credits)
		end->credits = status.received;
	if (step->announces && end->announced - end->credits >= RECVS)
		return false;
	return !step->writes || end->window_announced[step->write % WINDOWS] <= end->credits;
}

static uint32_t split(const struct end *end, const struct step *step, uint8_t *memory,
		      struct ibv_sge *sge)
{
	uint32_t parts =
	    step->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || step->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD
		? 1
		: 1 + (step->bits >> 5) % 3;
	uint32_t at = 0;

	for (uint32_t i = 0; i < parts; i++) {
		uint32_t bytes = i == parts - 1 ? step->bytes - at : step->bytes / parts;

		sge[i] = (struct ibv_sge){ (uintptr_t)memory + at, bytes, end->mr->lkey };
		at += bytes;
	}
	return parts;
}

static bool fills(uint32_t opcode)
{
	return opcode != IBV_WR_RDMA_READ && opcode != IBV_WR_ATOMIC_CMP_AND_SWP &&
	       opcode != IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Where the step goes at the peer, and what it does there. */
static void aim(struct end *end, struct stage *stage, struct ibv_send_wr *wr)
{
	const struct step *step = &stage->step;
	uint64_t memory = end->peer.memory;
	struct status status = status_of(end);

	switch (step->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		wr->wr.rdma.remote_addr =
		    memory + PLACE_WINDOW + step->write % WINDOWS * MESSAGE_MAX_BYTES;
		if (status.window)
			end->peer_window = (uint32_t)status.window;
		wr->wr.rdma.rkey = end->peer_window ? end->peer_window : end->peer.rkey;
		break;
	case IBV_WR_RDMA_READ:
		wr->wr.rdma.remote_addr = memory + PLACE_SOURCE + read_offset(step);
		wr->wr.rdma.rkey = end->peer.rkey;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		wr->wr.atomic.remote_addr = end->peer.words + (PLACE_SWAP - PLACE_WORDS);
		wr->wr.atomic.rkey = end->peer.words_rkey;
		wr->wr.atomic.compare_add = stage->compare = end->swapped;
		wr->wr.atomic.swap = end->swapped = step->seed;
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wr->wr.atomic.remote_addr = end->peer.words + (PLACE_ADD - PLACE_WORDS);
		wr->wr.atomic.rkey = end->peer.words_rkey;
		wr->wr.atomic.compare_add = step->seed;
		stage->compare = end->added;
		end->added += step->seed;
		break;
	case IBV_WR_SEND_WITH_INV:
		if ((uint32_t)status.invalidate <= end->invalidated) {
			wr->opcode = IBV_WR_SEND; /* no key to invalidate, or none known now */
			break;
		}
		end->invalidated = (uint32_t)status.invalidate;
		wr->invalidate_rkey = (uint32_t)(status.invalidate >> 32);
		break;
	default:
		break;
	}
}

static unsigned int flags_of(struct end *end, const struct step *step)
{
	unsigned int flags = 0;

	if (step->bits & 4 && end->out.reliable)
		flags |= IBV_SEND_FENCE;
	if (step->bits & 8)
		flags |= IBV_SEND_SOLICITED;
	if (step->bits & 16 && step->bytes <= INLINE_BYTES && fills(step->opcode))
		flags |= IBV_SEND_INLINE;
	/* Never two in a row: the queue has to be given back. */
	end->last_unsignaled = !end->last_unsignaled && !(step->bits & 3) && fills(step->opcode);
	if (!end->last_unsignaled)
		flags |= IBV_SEND_SIGNALED;
	return flags;
}

static void post(struct end *end)
{
	struct stage *stage = &end->stages[end->posted % STAGES];
	uint8_t *memory = end->memory + PLACE_STAGE + end->posted % STAGES * MESSAGE_MAX_BYTES;
	struct step *step = &stage->step;
	struct ibv_sge sge[3];
	struct ibv_send_wr *bad, wr = { .sg_list = sge };
	int error;

	*stage = (struct stage){ .step = end->ready };
	end->has_ready = false;
	wr.wr_id = WR_ID(WR_STEP, end->id, step->number);
	wr.opcode = step->opcode;
	wr.imm_data = step->imm;
	wr.num_sge = (int)split(end, step, memory, sge);
	wr.send_flags = flags_of(end, step);
	aim(end, stage, &wr);
	wr.qp_type.xrc.remote_srqn = end->peer.srqn;
	if (fills(step->opcode))
		pattern_fill(memory, step->bytes, step->seed, 0);
	if (step->writes)
		end->windows_open |= 1u << step->write % WINDOWS;
	if (step->announces) {
		end->announced++;
		for (uint32_t i = 0; i < WINDOWS; i++)
			if (end->windows_open >> i & 1)
				end->window_announced[i] = end->announced;
		end->windows_open = 0;
	}
	end->posted++;
	board_log(LOG_POSTED, end->id, step->number, wr.opcode, step->bytes, 0);
	error = ibv_post_send(end->qp, &wr, &bad);
	if (error)
		give_up("end %u: ibv_post_send of step %u: %s", end->id, (uint32_t)step->number,
			strerror(error));
}

/* Tells the peer how many of its messages are checked and which key it may invalidate. */
static void give_credit(struct end *end)
{
	struct status status = {
		.received = end->received,
		.invalidate = (uint64_t)end->invalidate_mr->rkey << 32 | end->invalidate_number,
		.window = end->mw_bound ? end->mw->rkey : 0,
	};
	struct ibv_sge sge = { (uintptr_t)&status, sizeof(status), 0 };
	struct ibv_send_wr *bad, wr = { .wr_id = WR_ID(WR_CREDIT, end->id, 0),
					.sg_list = &sge,
					.num_sge = 1,
					.opcode = IBV_WR_RDMA_WRITE,
					.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE };
	int error;

	if (end->credit_busy ||
	    (end->received == end->credited && end->invalidate_number == end->invalidate_credited &&
	     end->mw_bound == end->mw_credited))
		return;
	status.check = check_of(&status);
	wr.qp_type.xrc.remote_srqn = end->peer.srqn; /* it names the memory's PD, too */
	wr.wr.rdma.remote_addr = end->peer.memory + PLACE_STATUS;
	wr.wr.rdma.rkey = end->peer.rkey;
	end->credit_busy = true;
	end->credited = end->received;
	end->invalidate_credited = end->invalidate_number;
	end->mw_credited = end->mw_bound;
	error = ibv_post_send(end->qp, &wr, &bad);
	if (error)
		give_up("end %u: ibv_post_send of credit: %s", end->id, strerror(error));
}

void end_send(struct end *end)
{
	if (!end->running)
		return;
	while (end->posted - end->done < STAGES) {
		if (!end->has_ready)
			end->ready = stream_next(&end->out);
		end->has_ready = true;
		if (!has_room(end, &end->ready))
			break;
		post(end);
	}
	give_credit(end);
}

static void check_bytes(const struct end *end, const struct step *step, const uint8_t *at,
			uint64_t seed, uint64_t offset, const char *what)
{
	size_t good = pattern_match(at, step->bytes, seed, offset);

	board->bytes += step->bytes;
	if (good != step->bytes)
		wrong("end %u: %s %llu (opcode %u, %u bytes) differs at byte %zu: 0x%02x", end->id,
		      what, (unsigned long long)step->number, step->opcode, step->bytes, good,
		      at[good]);
}

/* A step that is done: what it fetched is checked. */
static void check_done(struct end *end, const struct stage *stage)
{
	const struct step *step = &stage->step;
	const uint8_t *memory =
	    end->memory + PLACE_STAGE + step->number % STAGES * MESSAGE_MAX_BYTES;
	uint64_t original;

	board->operations++;
	board_log(LOG_DONE, end->id, step->number, step->opcode, step->bytes, 0);
	if (step->opcode == IBV_WR_RDMA_READ) {
		check_bytes(end, step, memory, end->peer_source_seed, read_offset(step), "read");
	} else if (!fills(step->opcode)) {
		memcpy(&original, memory, sizeof(original));
		if (original != stage->compare)
			wrong("end %u: step %llu, atomic %u: found 0x%llx, not 0x%llx", end->id,
			      (unsigned long long)step->number, step->opcode,
			      (unsigned long long)original, (unsigned long long)stage->compare);
	}
}

/* --- inwards --------------------------------------------------------------------------------- */

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

/* UC: what a peer sent before it died, or while this end was stopped, may be lost; what comes
 * behind it must be good. */
static bool is_behind_a_loss(const struct end *end, const struct ibv_wc *wc, const uint8_t *buffer)
{
	struct stream stream = end->in;

	for (uint32_t i = 0; !stream.reliable && i <= RECVS; i++) {
		struct step step = next_announced(&stream);
		const uint8_t *at = step.writes ? window_of(end, &step) : buffer;

		if (is_of(wc, &step) && pattern_match(at, step.bytes, step.seed, 0) == step.bytes)
			return i != 0;
	}
	return false;
}

/* Follows the peer's stream to the step that took this receive; false: messages were lost. */
static bool receive(struct end *end, const struct ibv_wc *wc, const uint8_t *buffer)
{
	struct step step;

	if (is_behind_a_loss(end, wc, buffer))
		return false;
	for (step = stream_next(&end->in); !step.announces; step = stream_next(&end->in)) {
		if (!step.writes)
			continue;
		if (!end->in.reliable &&
		    pattern_match(window_of(end, &step), step.bytes, step.seed, 0) != step.bytes)
			return false;
		check_bytes(end, &step, window_of(end, &step), step.seed, 0, "write");
	}
	board_log(LOG_RECEIVED, end->id, step.number, step.opcode, wc->byte_len, wc->opcode);
	if (is_of(wc, &step))
		check_bytes(end, &step, step.writes ? window_of(end, &step) : buffer, step.seed, 0,
			    "message");
	else
		wrong("end %u: step %llu (opcode %u, %u bytes, imm 0x%x) came as opcode %u, %u "
		      "bytes, flags 0x%x, imm 0x%x",
		      end->id, (unsigned long long)step.number, step.opcode, step.bytes, step.imm,
		      wc->opcode, wc->byte_len, wc->wc_flags, wc->imm_data);
	if (wc->wc_flags & IBV_WC_WITH_INV)
		check_invalidated(end, wc);
	end->received++;
	return true;
}

bool end_complete(struct end *end, const struct ibv_wc *wc)
{
	uint32_t index = (uint32_t)wc->wr_id;

	if (wc->status != IBV_WC_SUCCESS)
		return false;
	switch (wc->wr_id >> 56) {
	case WR_STEP:
		do
			check_done(end, &end->stages[end->done % STAGES]);
		while ((uint32_t)end->done++ != index);
		break;
	case WR_CREDIT:
		end->credit_busy = false;
		break;
	case WR_BIND:
		end->mw_bound = true;
		break;
	case WR_RECV:
		if (!receive(end, wc, end->memory + PLACE_RECV + index * MESSAGE_MAX_BYTES))
			return false;
		end_post_recv(end, index);
		break;
	default:
		if (!receive(end, wc, worker.srq_memory + (size_t)index * MESSAGE_MAX_BYTES))
			return false;
		srq_post(index);
		break;
	}
	end_send(end);
	return true;
}
