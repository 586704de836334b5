/* SPDX-License-Identifier: BSD-3-Clause
 * The traffic of a link: steps of our stream out, and completions.  Our progress is written to the
 * peer as credit. */
#include "soak.h"

#include <errno.h>
#include <string.h>

/* No word for so long: credit is told again.  So a death is noticed where nothing is under way, and
 * credit that was lost comes. */
#define PULSE_NS UINT64_C(1000000000)

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

static bool has_news(const struct end *end)
{
	return end->received != end->credited ||
	       end->invalidate_number != end->invalidate_credited ||
	       end->mw_bound != end->mw_credited;
}

static bool is_silent(const struct end *end)
{
	return worker.network && clock_ns() - end->credited_ns > PULSE_NS;
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

	if (end->credit_busy || !(has_news(end) || is_silent(end)))
		return;
	status.check = check_of(&status);
	wr.qp_type.xrc.remote_srqn = end->peer.srqn; /* it names the memory's PD, too */
	wr.wr.rdma.remote_addr = end->peer.memory + PLACE_STATUS;
	wr.wr.rdma.rkey = end->peer.rkey;
	end->credit_busy = true;
	end->credited_ns = clock_ns();
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

void end_check_bytes(const struct end *end, const struct step *step, const uint8_t *at,
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
		end_check_bytes(end, step, memory, end->peer_source_seed, read_offset(step),
				"read");
	} else if (!fills(step->opcode)) {
		memcpy(&original, memory, sizeof(original));
		if (original != stage->compare)
			wrong("end %u: step %llu, atomic %u: found 0x%llx, not 0x%llx", end->id,
			      (unsigned long long)step->number, step->opcode,
			      (unsigned long long)original, (unsigned long long)stage->compare);
	}
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
		if (!end_receive(end, wc, end->memory + PLACE_RECV + index * MESSAGE_MAX_BYTES))
			return false;
		end_post_recv(end, index);
		break;
	default:
		if (!end_receive(end, wc, worker.srq_memory + (size_t)index * MESSAGE_MAX_BYTES))
			return false;
		srq_post(index);
		break;
	}
	end_send(end);
	return true;
}
