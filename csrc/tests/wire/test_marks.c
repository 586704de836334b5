/* SPDX-License-Identifier: BSD-3-Clause
 * Packets that come marked: their sender is notified, and keeps to its rate. */
#include "engine/transport/congestion.h"
#include "engine/core/engine.h"
#include "engine/wire/wire_internal.h"
#include "tests/wire/keeper.h"

#define ECN_MARKED 3
#define PIECE_BYTES 4096u
#define BYTES (512u * 1024u)
#define POLLS 1000u
#define SECOND_NS UINT64_C(1000000000)

static uint64_t clock_ns;

static uint64_t clock_of_test(void)
{
	return nupa_load_relaxed(&clock_ns);
}

static void set_clock(struct nupa_engine *engine, uint64_t (*now_ns)(void))
{
	nupa_engine_lock(engine);
	engine->now_ns = now_ns;
	nupa_engine_unlock(engine);
}

/* The class of what the port sends from now on. */
static void set_class(struct nupa_engine *engine, int class)
{
	CHECK(engine->wires);
	CHECK_EQ(setsockopt(engine->wires->udp, IPPROTO_IP, IP_TOS, &class, sizeof(class)), 0);
}

/* Sends marked packets until the sender has been notified. */
static void congest(struct wired *wired, struct nupa_engine *engine)
{
	const uint64_t until_ns = test_now_ns() + WAIT_NS;

	set_class(engine, ECN_MARKED);
	for (uint64_t i = 0; !keeper_info(&wired->a).cnp_handled; i++) {
		CHECK(test_now_ns() < until_ns);
		end_start(wired->end_a, IBV_WR_RDMA_WRITE, i, 0, PIECE_BYTES);
		cq_expect(wired->end_a->send_cq, i, IBV_WC_SUCCESS);
	}
	set_class(engine, NUPA_WIRE_ECN_CAPABLE);
}

TEST(a_notified_sender_keeps_to_its_rate)
{
	struct end_options options = end_defaults;
	struct wired wired;
	struct nupa_engine *engine;
	const struct nupa_qp *qp;
	uint64_t start_ns, sent_bytes, most;
	uint64_t (*real)(void);
	struct ibv_wc wc;

	wired_open(&wired, &options, 4096);
	engine = nupa_engine_of(wired.end_a->context);
	end_start(wired.end_a, IBV_WR_RDMA_WRITE, 0, 0, 8); /* it has a port */
	cq_expect(wired.end_a->send_cq, 0, IBV_WC_SUCCESS);
	congest(&wired, engine);
	CHECK(keeper_info(&wired.b).ecn_marked >= keeper_info(&wired.b).cnp_sent);
	CHECK(keeper_info(&wired.b).cnp_sent > 0);

	qp = nupa_qp_find(engine, wired.end_a->qp->qp_num);
	CHECK(qp->congestion && qp->congestion->slow);
	real = engine->now_ns;
	clock_ns = start_ns = real();
	set_clock(engine, clock_of_test);
	/* Few bytes have left, and yet it began with the rate of those, not with the line's. */
	most = qp->congestion->flow.target;
	CHECK(most < NUPA_CONGESTION_LINE / 2);

	/* While the clock stands, what leaves is a burst. */
	sent_bytes = keeper_info(&wired.a).sent_bytes;
	end_start(wired.end_a, IBV_WR_RDMA_WRITE, 1, 0, BYTES);
	for (uint32_t i = 0; i < POLLS; i++)
		CHECK_EQ(nupa_poll_cq(wired.end_a->send_cq, 1, &wc), 0);
	CHECK(keeper_info(&wired.a).sent_bytes - sent_bytes < BYTES);

	for (const uint64_t until_ns = test_now_ns() + WAIT_NS;
	     !nupa_poll_cq(wired.end_a->send_cq, 1, &wc);) {
		CHECK(test_now_ns() < until_ns);
		nupa_engine_lock(engine);
		if (qp->wait == NUPA_WAIT_RATE && qp->wait_until_ns > clock_ns)
			nupa_store_relaxed(&clock_ns, qp->wait_until_ns);
		nupa_engine_unlock(engine);
	}
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	if (qp->congestion->flow.target > most)
		most = qp->congestion->flow.target;
	CHECK(clock_ns - start_ns + 2 * NUPA_CONGESTION_BURST_NS >= BYTES * SECOND_NS / most);
	set_clock(engine, real);
	wired_close(&wired);
}
