/* SPDX-License-Identifier: BSD-3-Clause
 * The verbs with random and hostile arguments: states, masks, counts, keys, lengths, overlapping
 * lists; two threads on one context.  Each call succeeds or says an errno; sanitizers see the rest.
 * Pointers are good: hardware libraries, too, crash on others.  NUPA_FUZZ_SECONDS says for how
 * long; the seed is printed. */
#include "tests/support/end.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define MEMORY_BYTES (1u << 20)
#define MANY 8u /* objects of a kind */
#define SGES 4u

struct player {
	pthread_t thread;
	struct ibv_context *context;
	struct nupa_fabric *fabric;
	uint64_t random, until_ns, calls;
	uint8_t *memory;
	struct ibv_pd *pds[MANY];
	struct ibv_cq *cqs[MANY];
	struct ibv_srq *srqs[MANY];
	struct ibv_mr *mrs[MANY];
	struct ibv_qp *qps[MANY];
	struct ibv_ah *ahs[MANY];
	struct ibv_comp_channel *channel;
};

static uint32_t pick(struct player *p, uint32_t n)
{
	return (uint32_t)(test_random(&p->random) >> 20) % n;
}

/* Numbers that break things. */
static uint64_t odd(struct player *p)
{
	static const uint64_t values[] = { 0,     1,          2,           7,        8,
					   15,    16,         31,          32,       33,
					   255,   256,        4095,        4096,     32768,
					   65536, 0x7fffffff, 0x80000000u, 0xffffff, 0xffffffffu };

	return pick(p, 4) ? values[pick(p, 20)] : test_random(&p->random);
}

/* Mostly small, so that something works at times. */
static uint32_t count(struct player *p)
{
	return pick(p, 4) ? pick(p, 24) : (uint32_t)odd(p);
}

static uint64_t address(struct player *p)
{
	return (uintptr_t)p->memory + (pick(p, 3) ? pick(p, MEMORY_BYTES) : 0);
}

static uint32_t key(struct player *p)
{
	const struct ibv_mr *mr = p->mrs[pick(p, MANY)];

	return mr && pick(p, 8) ? mr->lkey ^ (pick(p, 16) ? 0 : 1u << pick(p, 32))
				: (uint32_t)odd(p);
}

static void fill_sges(struct player *p, struct ibv_sge *sges)
{
	for (uint32_t i = 0; i < SGES; i++) /* they overlap as they come */
		sges[i] =
		    (struct ibv_sge){ address(p), pick(p, 4) ? pick(p, 20000) : (uint32_t)odd(p),
				      key(p) };
}

/* --- objects --------------------------------------------------------------------------- */

static void play_pd(struct player *p, uint32_t i)
{
	if (!p->pds[i])
		p->pds[i] = nupa_alloc_pd(p->context);
	else if (pick(p, 8) == 0 && nupa_dealloc_pd(p->pds[i]) == 0)
		p->pds[i] = NULL;
}

static void play_cq(struct player *p, uint32_t i)
{
	if (!p->cqs[i])
		p->cqs[i] = nupa_create_cq(p->context, (int)(count(p) % 100000), NULL,
					   pick(p, 2) ? p->channel : NULL, (int)pick(p, 2));
	else if (pick(p, 4) == 0 && nupa_destroy_cq(p->cqs[i]) == 0)
		p->cqs[i] = NULL;
	else if (pick(p, 4) == 0)
		nupa_resize_cq(p->cqs[i], (int)(count(p) % 100000));
}

static void play_srq(struct player *p, uint32_t i)
{
	struct ibv_srq_init_attr init = {
		.attr = { .max_wr = count(p), .max_sge = count(p), .srq_limit = count(p) }
	};
	struct ibv_srq_attr attr = { .max_wr = count(p), .srq_limit = count(p) };
	struct ibv_pd *pd = p->pds[pick(p, MANY)];

	if (!p->srqs[i]) {
		p->srqs[i] = pd ? nupa_create_srq(pd, &init) : NULL;
		return;
	}
	nupa_modify_srq(p->srqs[i], &attr, (int)odd(p));
	nupa_query_srq(p->srqs[i], &attr);
	if (pick(p, 8) == 0 && nupa_destroy_srq(p->srqs[i]) == 0)
		p->srqs[i] = NULL;
}

static void play_mr(struct player *p, uint32_t i)
{
	struct ibv_pd *pd = p->pds[pick(p, MANY)];
	uint32_t offset = pick(p, MEMORY_BYTES);
	int access = pick(p, 4) ? (int)end_defaults.access : (int)odd(p);

	if (!p->mrs[i]) {
		uint64_t iova = pick(p, 2) ? (uintptr_t)p->memory + offset : odd(p);
		size_t length = pick(p, 8) ? pick(p, MEMORY_BYTES - offset + 1) : odd(p);

		/* On demand the whole address space may be registered, which all calls may hit. */
		if (pd && !(access & IBV_ACCESS_ON_DEMAND))
			p->mrs[i] = nupa_reg_mr(pd, p->memory + offset, length, iova, access);
	} else if (pick(p, 8) == 0 && nupa_dereg_mr(p->mrs[i]) == 0) {
		p->mrs[i] = NULL;
	}
}

static void play_ah(struct player *p, uint32_t i)
{
	struct ibv_ah_attr attr = {
		.dlid = (uint16_t)odd(p),
		.is_global = (uint8_t)(pick(p, 4) ? 1 : odd(p)),
		.port_num = (uint8_t)(pick(p, 4) ? 1 : odd(p)),
		.grh = { .sgid_index = (uint8_t)(pick(p, 4) ? 1 : odd(p)), .hop_limit = 1 },
	};
	struct ibv_pd *pd = p->pds[pick(p, MANY)];

	nupa_query_gid(p->context, 1, (int)(pick(p, 4) ? 1 : odd(p)), &attr.grh.dgid);
	attr.grh.dgid.raw[15] ^= (uint8_t)pick(p, 4);
	if (!p->ahs[i])
		p->ahs[i] = pd ? nupa_create_ah(pd, &attr) : NULL;
	/* An AH that requests name must stay until they are done: none is destroyed here. */
}

static void play_qp(struct player *p, uint32_t i)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	struct ibv_pd *pd = p->pds[pick(p, MANY)];
	struct ibv_qp_init_attr init = {
		.send_cq = p->cqs[pick(p, MANY)],
		.recv_cq = p->cqs[pick(p, MANY)],
		.srq = pick(p, 2) ? p->srqs[pick(p, MANY)] : NULL,
		.cap = { count(p), count(p), count(p), count(p), count(p) },
		.qp_type = pick(p, 8) ? types[pick(p, 3)] : (enum ibv_qp_type)odd(p),
		.sq_sig_all = (int)pick(p, 2),
	};

	if (!p->qps[i])
		p->qps[i] = pd ? nupa_create_qp(pd, &init) : NULL;
	else if (pick(p, 16) == 0 && nupa_destroy_qp(p->qps[i]) == 0)
		p->qps[i] = NULL;
}

/* --- states ---------------------------------------------------------------------------- */

/* The masks of an orderly life, from RESET on. */
static int orderly_mask(enum ibv_qp_type type, enum ibv_qp_state to)
{
	int mask = IBV_QP_STATE;

	if (to == IBV_QPS_INIT)
		return mask | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		       (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	if (to == IBV_QPS_RTR && type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (to == IBV_QPS_RTR && type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (to == IBV_QPS_RTS)
		mask |= IBV_QP_SQ_PSN;
	if (to == IBV_QPS_RTS && type == IBV_QPT_RC)
		mask |=
		    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	return mask;
}

static void play_modify(struct player *p, struct ibv_qp *qp)
{
	const struct ibv_qp *peer = p->qps[pick(p, MANY)];
	uint32_t state = __atomic_load_n(&qp->state, __ATOMIC_RELAXED);
	enum ibv_qp_state to =
	    pick(p, 8) ? (enum ibv_qp_state)(state + 1) : (enum ibv_qp_state)pick(p, 9);
	bool wild = pick(p, 4) == 0;
	struct ibv_qp_attr attr = {
		.qp_state = to,
		.cur_qp_state = (enum ibv_qp_state)(wild ? odd(p) : state),
		.path_mtu = (enum ibv_mtu)(wild ? odd(p) : IBV_MTU_4096),
		.qkey = TEST_QKEY,
		.rq_psn = wild ? (uint32_t)odd(p) : 0,
		.sq_psn = wild ? (uint32_t)odd(p) : 0,
		.dest_qp_num = peer && pick(p, 8) ? peer->qp_num : (uint32_t)odd(p),
		.qp_access_flags = wild ? (unsigned int)odd(p) : end_defaults.access,
		.pkey_index = (uint16_t)(wild ? odd(p) : 0),
		.max_rd_atomic = (uint8_t)(wild ? odd(p) : 4),
		.max_dest_rd_atomic = (uint8_t)(wild ? odd(p) : 4),
		.min_rnr_timer = (uint8_t)(wild ? odd(p) : 1),
		.port_num = (uint8_t)(wild ? odd(p) : 1),
		.timeout = (uint8_t)(wild ? odd(p) : 4),
		.retry_cnt = (uint8_t)(wild ? odd(p) : 1),
		.rnr_retry = (uint8_t)(wild ? odd(p) : 1),
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .sgid_index = (uint8_t)(wild ? odd(p) : 1),
				      .hop_limit = 1 } },
	};
	struct ibv_qp_init_attr init;
	int mask = orderly_mask(qp->qp_type, to);

	/* AV.dgid: of some host, or of none. */
	nupa_query_gid(p->context, 1, 1, &attr.ah_attr.grh.dgid);
	if (wild)
		attr.ah_attr.grh.dgid.raw[pick(p, 16)] ^= (uint8_t)odd(p);
	if (pick(p, 4) == 0)
		mask ^= 1 << pick(p, 26);
	nupa_modify_qp(qp, &attr, mask);
	nupa_query_qp(qp, &attr, (int)odd(p), &init);
	CHECK(attr.qp_state <= IBV_QPS_ERR);
}

/* --- work ------------------------------------------------------------------------------ */

static void play_recv(struct player *p, struct ibv_qp *qp, struct ibv_srq *srq)
{
	struct ibv_sge sges[SGES];
	struct ibv_recv_wr *bad = NULL, wrs[3];
	uint32_t n = 1 + pick(p, 3);
	int error;

	fill_sges(p, sges);
	for (uint32_t i = 0; i < n; i++)
		wrs[i] = (struct ibv_recv_wr){
			.wr_id = i,
			.next = i + 1 < n ? &wrs[i + 1] : NULL,
			.sg_list = pick(p, 8) ? sges : NULL,
		};
	for (uint32_t i = 0; i < n; i++) /* no list: no entries */
		wrs[i].num_sge = !wrs[i].sg_list ? 0
				 : pick(p, 8)    ? (int)pick(p, SGES + 1)
						 : (pick(p, 2) ? -(int)pick(p, 99) : 1 << 30);
	error = srq ? nupa_post_srq_recv(srq, wrs, &bad) : nupa_post_recv(qp, wrs, &bad);
	CHECK_EQ(error != 0, bad != NULL);
}

static void fill_send(struct player *p, struct ibv_send_wr *wr, struct ibv_sge *sges)
{
	const struct ibv_mr *mr = p->mrs[pick(p, MANY)];
	bool list = pick(p, 8) != 0;

	memset(wr, 0, sizeof(*wr));
	wr->wr_id = odd(p);
	wr->sg_list = list ? sges : NULL;
	wr->num_sge = !list         ? 0
		      : pick(p, 16) ? (int)pick(p, SGES + 1)
				    : (pick(p, 2) ? -(int)pick(p, 99) : 1 << 30);
	wr->opcode = (enum ibv_wr_opcode)(pick(p, 16) ? pick(p, 12) : (uint32_t)odd(p));
	wr->send_flags = pick(p, 4) ? IBV_SEND_SIGNALED : (unsigned int)odd(p);
	wr->imm_data = (uint32_t)odd(p);
	if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		sges[0].length = pick(p, 8) ? 8 : sges[0].length;
		wr->num_sge = list && pick(p, 8) ? 1 : wr->num_sge;
		wr->wr.atomic.remote_addr = address(p) & ~(pick(p, 8) ? UINT64_C(7) : 0);
		wr->wr.atomic.rkey = mr ? mr->rkey : key(p);
		wr->wr.atomic.compare_add = odd(p);
		return;
	}
	if (wr->opcode == IBV_WR_BIND_MW) /* its pointers have to be good ones */
		wr->opcode = IBV_WR_LOCAL_INV;
	wr->wr.rdma.remote_addr = pick(p, 8) ? address(p) : odd(p);
	wr->wr.rdma.rkey = key(p);
}

static void play_send(struct player *p, struct ibv_qp *qp)
{
	struct ibv_sge sges[SGES];
	struct ibv_send_wr *bad = NULL, wrs[3];
	uint32_t n = 1 + pick(p, 3);
	int error;

	for (uint32_t i = 0; i < n; i++) {
		fill_sges(p, sges);
		fill_send(p, &wrs[i], sges);
		wrs[i].next = i + 1 < n ? &wrs[i + 1] : NULL;
		if (wrs[i].send_flags & IBV_SEND_INLINE)
			for (uint32_t j = 0; j < SGES; j++) /* inline data is read at once */
				sges[j] = (struct ibv_sge){ (uintptr_t)p->memory, pick(p, 300), 0 };
		if (qp->qp_type == IBV_QPT_UD) {
			const struct ibv_qp *peer = p->qps[pick(p, MANY)];

			wrs[i].wr.ud.ah = p->ahs[pick(p, MANY)];
			wrs[i].wr.ud.remote_qpn = peer ? peer->qp_num : (uint32_t)odd(p);
			wrs[i].wr.ud.remote_qkey = pick(p, 4) ? TEST_QKEY : (uint32_t)odd(p);
		}
	}
	error = nupa_post_send(qp, wrs, &bad);
	CHECK_EQ(error != 0, bad != NULL);
}

static void play_poll(struct player *p, struct ibv_cq *cq)
{
	struct ibv_async_event event;
	struct ibv_wc wc[8];
	struct ibv_cq *got;
	void *context;
	int n = nupa_poll_cq(cq, (int)pick(p, 9), wc);

	CHECK(n <= 8);
	for (int i = 0; i < n; i++)
		CHECK(wc[i].status <= IBV_WC_TM_RNDV_INCOMPLETE);
	if (pick(p, 4) == 0)
		nupa_req_notify_cq(cq, (int)odd(p));
	while (nupa_get_cq_event(p->channel, &got, &context) == 0)
		nupa_ack_cq_events(got, 1);
	while (pick(p, 2) && nupa_get_async_event(p->context, &event) == 0)
		nupa_ack_async_event(&event);
}

/* --- play ------------------------------------------------------------------------------ */

static void play_once(struct player *p)
{
	static void (*const objects[])(struct player *, uint32_t) = { play_pd, play_cq, play_srq,
								      play_mr, play_ah, play_qp };
	struct ibv_qp *qp = p->qps[pick(p, MANY)];
	struct ibv_srq *srq = p->srqs[pick(p, MANY)];
	struct ibv_cq *cq = p->cqs[pick(p, MANY)];

	switch (pick(p, 8)) {
	case 0:
		objects[pick(p, 6)](p, pick(p, MANY));
		break;
	case 1:
		if (srq)
			play_recv(p, NULL, srq);
		break;
	case 2:
	case 3:
		if (cq)
			play_poll(p, cq);
		break;
	case 4:
		if (qp)
			play_modify(p, qp);
		break;
	case 5:
		if (qp)
			play_recv(p, qp, NULL);
		break;
	default:
		if (qp)
			play_send(p, qp);
		break;
	}
	p->calls++;
}

static void clean(struct player *p)
{
	for (uint32_t i = 0; i < MANY; i++)
		CHECK(!p->qps[i] || nupa_destroy_qp(p->qps[i]) == 0);
	for (uint32_t i = 0; i < MANY; i++) {
		CHECK(!p->ahs[i] || nupa_destroy_ah(p->ahs[i]) == 0);
		CHECK(!p->srqs[i] || nupa_destroy_srq(p->srqs[i]) == 0);
		CHECK(!p->cqs[i] || nupa_destroy_cq(p->cqs[i]) == 0);
		CHECK(!p->mrs[i] || nupa_dereg_mr(p->mrs[i]) == 0);
	}
	for (uint32_t i = 0; i < MANY; i++)
		CHECK(!p->pds[i] || nupa_dealloc_pd(p->pds[i]) == 0);
	CHECK_EQ(nupa_destroy_comp_channel(p->channel), 0);
}

static void *play(void *argument)
{
	struct player *p = argument;

	p->channel = nupa_create_comp_channel(p->context);
	CHECK(p->channel);
	CHECK_EQ(fcntl(p->channel->fd, F_SETFL, O_NONBLOCK), 0);
	while (test_now_ns() < p->until_ns)
		play_once(p);
	clean(p);
	return NULL;
}

static void any_arguments(enum nupa_mover mover)
{
	struct nupa_fabric *fabric = test_fabric();
	struct player players[2] = { 0 };
	uint64_t seed = test_seed(), calls = 0;
	char why[512];

	for (uint32_t i = 0; i < 2; i++) {
		players[i].fabric = fabric;
		players[i].context = nupa_open_host(fabric, 0, mover, why, sizeof(why));
		players[i].random = seed + i;
		players[i].until_ns = test_now_ns() + test_fuzz_ns(4);
		players[i].memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(players[i].context && players[i].memory != MAP_FAILED);
		CHECK_EQ(fcntl(players[i].context->async_fd, F_SETFL, O_NONBLOCK), 0);
		CHECK_EQ(pthread_create(&players[i].thread, NULL, play, &players[i]), 0);
	}
	for (uint32_t i = 0; i < 2; i++)
		CHECK_EQ(pthread_join(players[i].thread, NULL), 0);
	for (uint32_t i = 0; i < 2; i++) {
		CHECK_EQ(nupa_close_device(players[i].context), 0);
		CHECK_EQ(munmap(players[i].memory, MEMORY_BYTES), 0);
		calls += players[i].calls;
	}
	printf("  %llu calls\n", (unsigned long long)calls);
	nupa_fabric_put(fabric);
}

TEST(any_arguments_do_no_harm)
{
	any_arguments(NUPA_MOVER_NONE);
}

TEST(any_arguments_do_no_harm_by_messages)
{
	any_arguments(NUPA_MOVER_RELAY);
}

int main(int argc, char **argv)
{
	setenv("NUPA_QUIET", "1", 1);
	return test_main(argc, argv);
}
