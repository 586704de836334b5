/* SPDX-License-Identifier: BSD-3-Clause
 * Operations whose every byte is checked, of RC, UC or UD: see end.h for the options.
 *
 * The client sends the requests, of lengths on both sides of a packet's, one or DEPTH at once, and
 * tells the server of each step by TCP: both check what they have then. */
#include "end.h"

#include <endian.h>
#include <sys/socket.h>

#define ATOMICS 40u
#define UNRELIABLE_MAX 4099u
#define IMM(seed) (0x01020304u * (seed))

enum kind { SEND, SEND_IMM, WRITE, WRITE_IMM, READ, SEND_INV, FETCH_ADD, CMP_SWAP, KINDS };

static const struct {
	enum ibv_wr_opcode opcode;
	bool unreliable, datagram; /* of UC, of UD, too */
	bool receives, immediate;
} kinds[KINDS] = {
	[SEND] = { IBV_WR_SEND, true, true, true, false },
	[SEND_IMM] = { IBV_WR_SEND_WITH_IMM, true, true, true, true },
	/* Of UC, its end would be told to nobody. */
	[WRITE] = { IBV_WR_RDMA_WRITE, false, false, false, false },
	[WRITE_IMM] = { IBV_WR_RDMA_WRITE_WITH_IMM, true, false, true, true },
	[READ] = { IBV_WR_RDMA_READ, false, false, false, false },
	[SEND_INV] = { IBV_WR_SEND_WITH_INV, false, false, true, false },
	[FETCH_ADD] = { IBV_WR_ATOMIC_FETCH_AND_ADD, false, false, false, false },
	[CMP_SWAP] = { IBV_WR_ATOMIC_CMP_AND_SWP, false, false, false, false },
};

/* Piece *i* of the step's bytes: where it begins. */
static uint32_t begin_of(const struct step *step, uint32_t i)
{
	return (uint32_t)((uint64_t)step->length * i / step->pieces);
}

/* --- client -------------------------------------------------------------------------------- */

/* Two elements, whose border lies in no packet's; the reply of a READ or atomic comes to in(). */
static void post_piece(struct end *end, const struct step *step, uint32_t i,
		       const struct ibv_send_wr *more)
{
	const bool reply = step->kind == READ || step->kind >= FETCH_ADD;
	const uint32_t at = begin_of(step, i), bytes = begin_of(step, i + 1) - at;
	const uint64_t from = (uintptr_t)(reply ? in(end) : out(end)) + at;
	const uint32_t split = step->kind >= FETCH_ADD ? bytes : bytes / 3;
	struct ibv_sge sge[2] = { { from, split, end->mr->lkey },
				  { from + split, bytes - split, end->mr->lkey } };
	struct ibv_send_wr *bad, wr = *more;

	wr.sg_list = split ? sge : sge + 1;
	wr.num_sge = split && split < bytes ? 2 : 1;
	wr.opcode = kinds[step->kind].opcode;
	wr.send_flags = IBV_SEND_SIGNALED;
	if (kinds[step->kind].immediate)
		wr.imm_data = htobe32(IMM(step->seed + i));
	if (end->type == IBV_QPT_UD) {
		wr.wr.ud.ah = end->ah;
		wr.wr.ud.remote_qpn = end->peer.qpn;
		wr.wr.ud.remote_qkey = QKEY;
	} else if (step->kind < FETCH_ADD) {
		wr.wr.rdma.remote_addr = end->peer.at + at;
		wr.wr.rdma.rkey = end->peer.rkey;
	}
	MUST(!ibv_post_send(end->qp, &wr, &bad));
}

static void post(struct end *end, const struct step *step, const struct ibv_send_wr *more)
{
	for (uint32_t i = 0; i < step->pieces; i++)
		post_piece(end, step, i, more);
	for (uint32_t i = 0; i < step->pieces; i++)
		(void)end_completion(end, IBV_WC_SUCCESS);
}

/* The value that the server's memory has after so many atomics. */
static uint64_t value_after(uint32_t count)
{
	return count * 0x123456789abcdefull;
}

static uint64_t atomic(struct end *end, const struct step *step, uint64_t compare_add,
		       uint64_t swap)
{
	const struct ibv_send_wr wr = { .wr.atomic = { .remote_addr = end->peer.at,
						       .rkey = end->peer.rkey,
						       .compare_add = compare_add,
						       .swap = swap } };
	uint64_t found;

	post(end, step, &wr);
	memcpy(&found, in(end), sizeof(found));
	return found;
}

/* Every second comparison is with a wrong value, and changes nothing. */
static void run_atomics(struct end *end, const struct step *step)
{
	for (uint32_t i = 0; i < ATOMICS; i++) {
		const uint64_t now = value_after(i), next = value_after(i + 1);

		if (step->kind == FETCH_ADD) {
			MUST(atomic(end, step, next - now, 0) == now);
		} else {
			MUST(atomic(end, step, ~now, 1) == now);
			MUST(atomic(end, step, now, next) == now);
		}
	}
}

/* The server's window is written to, and ends with the message after that. */
static void run_window(struct end *end, const struct step *step, uint32_t window)
{
	const struct step write = { WRITE, step->length, step->seed, step->pieces };
	const uint32_t rkey = end->peer.rkey;

	end->peer.rkey = window;
	post(end, &write, &(struct ibv_send_wr){ 0 });
	end->peer.rkey = rkey;
	post(end, step, &(struct ibv_send_wr){ .invalidate_rkey = window });
	end->window = window;
}

/* What is invalid takes no more, and the QP ends. */
static void try_window(struct end *end)
{
	end->peer.rkey = end->window;
	post_piece(end, &(struct step){ WRITE, 8, 0, 1 }, 0, &(struct ibv_send_wr){ 0 });
	(void)end_completion(end, IBV_WC_REM_ACCESS_ERR);
}

static void request(struct end *end, const struct step *step)
{
	uint32_t window;
	char word;

	memset(end->memory, 0, BYTES);
	end_say(end, step, sizeof(*step));
	end_hear(end, &window, sizeof(window));
	end_fill(out(end), step);
	if (step->kind >= FETCH_ADD)
		run_atomics(end, step);
	else if (step->kind == SEND_INV)
		run_window(end, step, window);
	else
		post(end, step, &(struct ibv_send_wr){ 0 });
	if (step->kind == READ)
		end_check(end, step);
	end_say(end, "d", 1);
	end_hear(end, &word, 1);
}

static bool has_kind(const struct end *end, uint32_t kind)
{
	return end->type == IBV_QPT_RC   ? true
	       : end->type == IBV_QPT_UC ? kinds[kind].unreliable
					 : kinds[kind].datagram;
}

/* No more than a slow receiver has room for, where nothing is sent again. */
static uint32_t most_of(const struct end *end, uint32_t pieces)
{
	return end->type == IBV_QPT_RC   ? end->longest
	       : end->type == IBV_QPT_UC ? UNRELIABLE_MAX
					 : (uint32_t)end->mtu * pieces;
}

static void run_client(struct end *end)
{
	static const uint32_t lengths[] = { 1,    8,    255,  256,    257,       1024,
					    1025, 4096, 4099, 100000, LENGTH_MAX };
	uint32_t seed = 0, steps = 0;

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		for (uint32_t kind = SEND; kind <= SEND_INV; kind++)
			for (uint32_t pieces = 1; pieces <= DEPTH; pieces += DEPTH - 1) {
				if (!has_kind(end, kind) || lengths[i] > most_of(end, pieces) ||
				    lengths[i] < pieces || (kind == SEND_INV && pieces > 1))
					continue;
				request(end, &(struct step){ kind, lengths[i], seed, pieces });
				seed += DEPTH;
				steps++;
			}
	for (uint32_t kind = FETCH_ADD; kind <= CMP_SWAP && has_kind(end, kind); kind++, steps++)
		request(end, &(struct step){ kind, sizeof(uint64_t), seed++, 1 });
	if (end->window)
		try_window(end);
	shutdown(end->tcp, SHUT_WR);
	printf("%u steps, all bytes right\n", steps);
}

/* --- server -------------------------------------------------------------------------------- */

/* Where a message goes: what was written by a window stays in in(). */
static unsigned char *place_of(const struct end *end, const struct step *step)
{
	return step->kind == SEND_INV ? out(end) : in(end);
}

static void post_receives(struct end *end, const struct step *step)
{
	for (uint32_t i = 0; i < step->pieces; i++) {
		const uint32_t at = begin_of(step, i), bytes = begin_of(step, i + 1) - at;
		struct ibv_sge sge[2] = {
			{ (uintptr_t)grh(end), sizeof(struct ibv_grh), end->mr->lkey },
			{ (uintptr_t)place_of(end, step) + at, bytes, end->mr->lkey }
		};
		const bool datagram = end->type == IBV_QPT_UD;
		struct ibv_recv_wr *bad,
		    wr = { .sg_list = datagram ? sge : sge + 1, .num_sge = datagram ? 2 : 1 };

		MUST(!ibv_post_recv(end->qp, &wr, &bad));
	}
}

static void take_receives(struct end *end, const struct step *step, uint32_t window)
{
	for (uint32_t i = 0; i < step->pieces; i++) {
		const struct ibv_wc wc = end_completion(end, IBV_WC_SUCCESS);
		uint32_t bytes = begin_of(step, i + 1) - begin_of(step, i);

		if (end->type == IBV_QPT_UD) {
			bytes += sizeof(struct ibv_grh);
			MUST(wc.wc_flags & IBV_WC_GRH);
			MUST(wc.src_qp == end->peer.qpn);
		}
		MUST(wc.byte_len == bytes);
		if (kinds[step->kind].immediate) {
			MUST(wc.wc_flags & IBV_WC_WITH_IMM);
			MUST(be32toh(wc.imm_data) == IMM(step->seed + i));
		}
		/* rdma_rxe tells programs nothing. */
		MUST(!(wc.wc_flags & IBV_WC_WITH_INV) || wc.invalidated_rkey == window);
	}
}

/* A window of type 2 on in(). */
static struct ibv_mw *open_window(struct end *end, const struct step *step)
{
	struct ibv_mw *mw = ibv_alloc_mw(end->pd, IBV_MW_TYPE_2);
	struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED };

	MUST(mw);
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ end->mr, (uintptr_t)in(end), step->length,
							  IBV_ACCESS_REMOTE_WRITE };
	MUST(!ibv_post_send(end->qp, &wr, &bad));
	(void)end_completion(end, IBV_WC_SUCCESS);
	mw->rkey = wr.bind_mw.rkey;
	return mw;
}

static void serve_step(struct end *end, const struct step *step)
{
	struct ibv_mw *window = NULL;
	uint32_t rkey = 0;
	uint64_t value;
	char word;

	memset(end->memory, 0, BYTES);
	if (step->kind == READ)
		end_fill(in(end), step);
	if (step->kind == SEND_INV) {
		window = open_window(end, step);
		rkey = window->rkey;
	}
	if (kinds[step->kind].receives)
		post_receives(end, step);
	end_say(end, &rkey, sizeof(rkey));
	end_hear(end, &word, 1);
	if (kinds[step->kind].receives)
		take_receives(end, step, rkey);
	memcpy(&value, in(end), sizeof(value));
	if (step->kind < FETCH_ADD)
		end_check(end, step);
	else
		MUST(value == value_after(ATOMICS));
	if (window)
		MUST(!memcmp(in(end), out(end), step->length));
	end_say(end, "y", 1);
}

static void run_server(struct end *end)
{
	struct step step;
	uint32_t steps = 0;

	for (; recv(end->tcp, &step, sizeof(step), MSG_WAITALL) == sizeof(step); steps++) {
		MUST(step.kind < KINDS && step.length <= LENGTH_MAX && step.pieces - 1 < DEPTH);
		serve_step(end, &step);
	}
	printf("%u steps, all bytes right\n", steps);
}

int main(int argc, char **argv)
{
	struct end end;

	end_open(&end, argc, argv);
	if (end.serves)
		run_server(&end);
	else
		run_client(&end);
	return 0;
}
