/* SPDX-License-Identifier: BSD-3-Clause
 * One end of a link: made, connected, destroyed.  Memory of a destroyed end is checked for a while:
 * no process may write to it any more. */
#include "soak.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ACCESS                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)

/* Longer than any worker is stopped: a late write would have come by then. */
#define GRAVE_NS UINT64_C(400000000)
#define GRAVES 32u
#define CANARY 0xa5
#define DEREG_LIMIT_NS UINT64_C(30000000000)

#define LONG_NS UINT64_C(3000000)
uint64_t last_long_dereg_ns;

static struct grave {
	uint8_t *memory;
	uint64_t since_ns;
	uint32_t end;
} graves[GRAVES];
static uint64_t graves_dug, graves_filled;

static struct ibv_mr *must_register(void *at, size_t bytes, int more_access)
{
	struct ibv_mr *mr = ibv_reg_mr(worker.pd, at, bytes, ACCESS | more_access);

	if (!mr)
		give_up("ibv_reg_mr of %zu bytes: %s", bytes, strerror(errno));
	return mr;
}

static struct ibv_qp *make_qp(bool reliable, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = worker.cq,
		.recv_cq = worker.cq,
		.srq = srq,
		.cap = { .max_send_wr = STAGES * 2 + 4,
			 .max_recv_wr = RECVS,
			 .max_send_sge = 4,
			 .max_recv_sge = 1,
			 .max_inline_data = INLINE_BYTES },
		.qp_type = reliable ? IBV_QPT_RC : IBV_QPT_UC,
	};
	struct ibv_qp *qp = ibv_create_qp(worker.pd, &init);

	if (!qp)
		give_up("ibv_create_qp: %s", strerror(errno));
	return qp;
}

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = ACCESS };

	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		give_up("to INIT failed");
}

static void make_qps(struct end *end, bool with_srq)
{
	if (end->service == SERVICE_XRC)
		xrc_make_qps(end);
	else
		end->qp = end->recv_qp =
		    make_qp(end->service == SERVICE_RC, with_srq ? worker.srq : NULL);
	to_init(end->qp);
	if (end->recv_qp != end->qp)
		to_init(end->recv_qp);
	for (uint32_t i = 0; !with_srq && i < RECVS && end->service != SERVICE_XRC; i++)
		end_post_recv(end, i);
}

bool end_has_qp(const struct end *end, uint32_t qpn)
{
	return end->qp->qp_num == qpn || end->recv_qp->qp_num == qpn;
}

struct end *end_make(const struct plan *plan)
{
	struct end *end = calloc(1, sizeof(*end));
	bool first = plan->first, reliable = plan->service != SERVICE_UC;
	bool xrc = plan->service == SERVICE_XRC;
	uint64_t seed = plan->seed;

	if (!end)
		give_up("no memory for an end");
	end->id = plan->id;
	end->made_ns = clock_ns();
	end->service = plan->service;
	end->out = (struct stream){ .seed = mix(seed, first), .reliable = reliable, .xrc = xrc };
	end->in = (struct stream){ .seed = mix(seed, !first), .reliable = reliable, .xrc = xrc };
	end->peer_source_seed = mix(seed, first ? 3 : 2);
	end->memory =
	    mmap(NULL, END_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (end->memory == MAP_FAILED)
		give_up("no memory for an end");
	pattern_fill(end->memory + PLACE_SOURCE, MESSAGE_MAX_BYTES, mix(seed, first ? 2 : 3), 0);
	end->mr = must_register(end->memory, END_BYTES,
				plan->dress & DRESS_ON_DEMAND ? IBV_ACCESS_ON_DEMAND
							      : IBV_ACCESS_MW_BIND);
	end->invalidate_mr = must_register(end->memory + PLACE_INVALIDATE, 64, 0);
	end->invalidate_number = 1;
	dress_put_on(end, plan);
	make_qps(end, plan->dress & DRESS_SRQ);
	board_log(LOG_MADE, end->id, 0, 0, 0, 0);
	return end;
}

static bool to_rtr(const struct end *end, struct ibv_qp *qp, uint32_t peer_qpn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu_now(),
		.dest_qp_num = peer_qpn,
		.rq_psn = end->peer.psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = end->peer.gid,
				      .sgid_index = worker.gid_index,
				      .hop_limit = 64 } },
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	int error;

	if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_RECV)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	error = ibv_modify_qp(qp, &attr, mask);
	if (error && !worker.network)
		give_up("to RTR: %s", strerror(error));
	return !error;
}

bool end_to_ready(struct end *end)
{
	return to_rtr(end, end->qp, end->peer.qpn) &&
	       (end->recv_qp == end->qp || to_rtr(end, end->recv_qp, end->peer.send_qpn));
}

bool end_go(struct end *end)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = end->id & 0xffffff,
		.timeout = worker.timeout, /* 8 times */
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	int error;

	if (end->service != SERVICE_UC)
		mask |=
		    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	error = ibv_modify_qp(end->qp, &attr, mask);
	end->running = !error;
	if (!error)
		dress_bind(end);
	return !error;
}

void end_die(struct end *end)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	end->running = false;
	end->dying = true;
	end->died_at = worker.polled;
	if (ibv_modify_qp(end->qp, &attr, IBV_QP_STATE) ||
	    (end->recv_qp != end->qp && ibv_modify_qp(end->recv_qp, &attr, IBV_QP_STATE)))
		wrong("end %u does not become ERR", end->id);
}

static void bury(struct end *end)
{
	memset(end->memory + PLACE_WINDOW, CANARY, WINDOWS * MESSAGE_MAX_BYTES);
	memset(end->memory + PLACE_WORDS, CANARY, 4096);
	if (graves_dug - graves_filled == GRAVES)
		graves_visit(true);
	graves[graves_dug++ % GRAVES] = (struct grave){ end->memory, clock_ns(), end->id };
}

static void check_canary(const struct grave *grave, uint32_t from, uint32_t bytes)
{
	for (uint32_t i = from; i < from + bytes; i++) {
		if (grave->memory[i] == CANARY)
			continue;
		wrong("end %u: memory at %u changed after ibv_dereg_mr had returned", grave->end,
		      i);
		return;
	}
}

void graves_visit(bool all)
{
	while (graves_filled != graves_dug) {
		struct grave *grave = &graves[graves_filled % GRAVES];

		if (!all && clock_ns() - grave->since_ns < GRAVE_NS)
			return;
		check_canary(grave, PLACE_WINDOW, WINDOWS * MESSAGE_MAX_BYTES);
		check_canary(grave, PLACE_WORDS, 4096);
		munmap(grave->memory, END_BYTES);
		graves_filled++;
		all = false;
	}
}

void until_free(int (*call)(void *object), void *object, const char *what)
{
	uint64_t start_ns = clock_ns(), took_ns;
	int error;

	do
		error = call(object);
	while (error == EBUSY && clock_ns() - start_ns < DEREG_LIMIT_NS);
	took_ns = clock_ns() - start_ns;
	if (took_ns > LONG_NS)
		last_long_dereg_ns = clock_ns();
	if (took_ns > board->longest_dereg_ns)
		board->longest_dereg_ns = took_ns;
	if (error)
		wrong("%s after %.1f s: %s", what, (double)took_ns / 1e9, strerror(error));
}

int dereg(void *mr)
{
	return ibv_dereg_mr(mr);
}

void end_destroy(struct end *end)
{
	int error = ibv_destroy_qp(end->qp);

	if (!error && end->recv_qp != end->qp)
		error = ibv_destroy_qp(end->recv_qp);
	if (error)
		wrong("ibv_destroy_qp: %s", strerror(error));
	dress_take_off(end);
	until_free(dereg, end->invalidate_mr, "ibv_dereg_mr");
	until_free(dereg, end->mr, "ibv_dereg_mr");
	end_check_words(end);
	bury(end);
	board_log(LOG_DESTROYED, end->id, end->posted, 0, 0, 0);
	free(end);
}
