/* SPDX-License-Identifier: BSD-3-Clause
 * Senders of UC and UD wait for no receiver, and what finds no receive holds up nothing else; a
 * receiver that is merely slow loses nothing. */
#include "engine/device/device.h"
#include "tests/support/target.h"

#include <string.h>

#define MS UINT64_C(1000000)
#define MANY (4 * TEST_RING_LINES)

static struct nupa_qp *qp_of(const struct end *end)
{
	return container_of(end->qp, struct nupa_qp, ibv);
}

static struct nupa_hw_counters hw_of(struct nupa_fabric *fabric, uint32_t host)
{
	struct nupa_hw_counters found;

	CHECK_EQ(nupa_fabric_hw_counters(fabric, host, &found), 0);
	return found;
}

/* Messages that either end dropped. */
static uint64_t lost(struct nupa_fabric *fabric)
{
	return hw_of(fabric, 0).tx_no_room + hw_of(fabric, 1).rx_no_receive;
}

static struct end_options options_of(enum ibv_qp_type type)
{
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);

	options.type = type;
	return options;
}

/* Tests of what waits for 100 ms at most: an attempt that lost something counts for nothing if this
 * process was without a core meanwhile, and is made again. */
#define CORE_LOST_NS (50 * MS)

struct pace {
	uint64_t deadline_ns, last_ns, longest_ns;
};

static void pace_begin(struct pace *pace)
{
	pace->last_ns = test_now_ns();
	pace->longest_ns = 0;
	if (!pace->deadline_ns)
		pace->deadline_ns = pace->last_ns + 2 * WAIT_NS;
}

static void pace_step(struct pace *pace)
{
	uint64_t now_ns = test_now_ns();

	if (now_ns - pace->last_ns > pace->longest_ns)
		pace->longest_ns = now_ns - pace->last_ns;
	pace->last_ns = now_ns;
}

/* Nothing is lost: true.  False: again. */
static bool pace_holds(struct pace *pace, uint64_t n_lost)
{
	pace_step(pace);
	if (!n_lost)
		return true;
	CHECK(pace->longest_ns > CORE_LOST_NS && pace->last_ns < pace->deadline_ns);
	return false;
}

/* --- a stopped receiver ---------------------------------------------------------------- */

/* The peer goes on: until it has taken something, more is lost. */
static void await_drained(const struct end *end, const struct target *target)
{
	struct nupa_engine *engine = qp_of(end)->engine;
	uint64_t deadline_ns = test_now_ns() + WAIT_NS;

	for (bool drained = false; !drained;) {
		nupa_engine_lock(engine);
		drained = nupa_tx_drained(
		    &engine->channels[target->address.qpn >> NUPA_QP_INDEX_BITS]->tx);
		nupa_engine_unlock(engine);
		CHECK(test_now_ns() < deadline_ns);
	}
}

/* All complete, though nobody takes any; the surplus is counted, and what had room arrives. */
static void post_to_stopped(enum ibv_qp_type type, enum ibv_wr_opcode opcode, uint32_t bytes)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = options_of(type);
	struct target target = target_fork(fabric);
	struct end *end = end_open(fabric, &options), *a, *b;
	uint64_t n_lost;

	target_open(&target, fabric, &options);
	target_connect(&target, &end->self);
	end_connect(end, &target.address);
	target_post_recv(&target, 0, 0, 8192);
	end_start(end, IBV_WR_SEND, 0, 0, 8); /* the channel is open in both directions */
	cq_expect(end->send_cq, 0, IBV_WC_SUCCESS);
	target_expect(&target, 0, IBV_WC_SUCCESS);
	for (uint64_t i = 0; i < TEST_RING_LINES; i++)
		target_post_recv(&target, i, 0, 8192);
	target_stop(&target);
	for (uint64_t i = 0; i < MANY; i++) {
		end_start(end, opcode, i, 0, bytes);
		cq_expect(end->send_cq, i, IBV_WC_SUCCESS);
	}
	n_lost = hw_of(fabric, 0).tx_no_room;
	CHECK(n_lost >= MANY - TEST_RING_LINES && n_lost < MANY);
	/* Others are reached as ever. */
	pair_open(fabric, &options, &a, &b);
	end_post_recv(b, 7, 0, 8192);
	end_start(a, IBV_WR_SEND, 7, 0, bytes);
	cq_expect(b->recv_cq, 7, IBV_WC_SUCCESS);
	cq_expect(a->send_cq, 7, IBV_WC_SUCCESS);
	pair_close(a, b);
	target_continue(&target);
	await_drained(end, &target);
	if (opcode != IBV_WR_SEND)
		n_lost = MANY;
	for (uint64_t i = 0; i < MANY - n_lost; i++)
		target_expect(&target, i, IBV_WC_SUCCESS);
	if (n_lost == MANY - TEST_RING_LINES)
		target_post_recv(&target, TEST_RING_LINES, 0, 8192);
	end_start(end, IBV_WR_SEND, 1, 0, bytes);
	cq_expect(end->send_cq, 1, IBV_WC_SUCCESS);
	target_expect(&target, MANY - n_lost, IBV_WC_SUCCESS);
	target_close(&target);
	end_close(end);
	nupa_fabric_put(fabric);
}

static void datagrams_to_a_stopped_process_complete_and_are_counted(void)
{
	post_to_stopped(IBV_QPT_UD, IBV_WR_SEND, 8);
	post_to_stopped(IBV_QPT_UD, IBV_WR_SEND, NUPA_MTU_BYTES);
}

static void messages_of_uc_to_a_stopped_process_complete_and_are_counted(void)
{
	post_to_stopped(IBV_QPT_UC, IBV_WR_SEND, 8);
	post_to_stopped(IBV_QPT_UC, IBV_WR_SEND, 5000);
	post_to_stopped(IBV_QPT_UC, IBV_WR_RDMA_WRITE, 5000);
}

/* Of a long one a part is sent: the receiver leaves it out, and its receive is the next one's. */
static void a_long_message_of_uc_breaks_off_at_a_stopped_process(void)
{
	const uint32_t bytes = 4 * TEST_DMA_BYTES;
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE); /* UC is never pulled */
	struct target target = target_fork(fabric);
	struct end *end;

	options.type = IBV_QPT_UC;
	end = end_open(fabric, &options);
	target_open(&target, fabric, &options);
	target_connect(&target, &end->self);
	end_connect(end, &target.address);
	target_post_recv(&target, 0, 0, bytes);
	end_start(end, IBV_WR_SEND, 0, 0, bytes);
	cq_expect(end->send_cq, 0, IBV_WC_SUCCESS);
	target_expect(&target, 0, IBV_WC_SUCCESS);
	target_post_recv(&target, 1, 0, bytes);
	target_stop(&target);
	for (uint64_t i = 0; i < 3; i++) {
		end_start(end, IBV_WR_SEND, i, 0, bytes);
		cq_expect(end->send_cq, i, IBV_WC_SUCCESS);
	}
	CHECK_EQ(hw_of(fabric, 0).tx_no_room, 3);
	target_continue(&target);
	await_drained(end, &target);
	pattern_fill(end->memory, bytes, 9);
	end_start(end, IBV_WR_SEND, 3, 0, bytes);
	cq_expect(end->send_cq, 3, IBV_WC_SUCCESS);
	CHECK_EQ(target_expect(&target, 1, IBV_WC_SUCCESS).byte_len, bytes);
	target_check(&target, 0, bytes, 9);
	target_close(&target);
	end_close(end);
	nupa_fabric_put(fabric);
}

/* --- a receiver without a receive -------------------------------------------------------- */

struct scene {
	struct nupa_fabric *fabric;
	struct end *from, *to; /* unreliable */
	uint32_t header;       /* in front of what arrives */
};

static struct scene scene_of(enum ibv_qp_type type)
{
	struct scene scene = { .fabric = test_fabric() };
	struct end_options options = options_of(type);

	pair_open(scene.fabric, &options, &scene.from, &scene.to);
	scene.header = type == IBV_QPT_UD ? NUPA_GRH_BYTES : 0;
	return scene;
}

static void scene_end(struct scene *scene)
{
	struct nupa_engine *engine = scene->to->qp ? qp_of(scene->to)->engine : NULL;

	nupa_engine_lock(engine);
	CHECK(!qp_of(scene->to)->backlog.n && nupa_list_empty(&engine->backlogs));
	CHECK(!engine->backlog_bytes && !engine->slot->backlogs);
	nupa_engine_unlock(engine);
	fabric_close(scene->fabric, scene->from, scene->to);
}

static void send_filled(struct scene *scene, uint64_t i, uint32_t bytes)
{
	pattern_fill(scene->from->memory, bytes, (uint32_t)i);
	end_start(scene->from, IBV_WR_SEND, i, 0, bytes);
	cq_expect(scene->from->send_cq, i, IBV_WC_SUCCESS);
}

static uint32_t waiting(const struct scene *scene)
{
	struct nupa_qp *qp = qp_of(scene->to);
	uint32_t n;

	nupa_engine_lock(qp->engine);
	n = qp->backlog.n;
	nupa_engine_unlock(qp->engine);
	return n;
}

/* One that takes the only receive, whose completion stays unpolled, and one that finds none. */
static void starve(struct scene *scene, uint32_t bytes)
{
	end_post_recv(scene->to, 0, 0, bytes + scene->header);
	send_filled(scene, 0, bytes);
	send_filled(scene, 1, bytes);
}

/* Events alone: what is sent later over the same channel arrives while the first still waits. */
static void rc_passes_what_finds_no_receive(enum ibv_qp_type type)
{
	struct end_options options = options_of(IBV_QPT_RC);
	struct pace pace = { 0 };

	for (bool done = false; !done;) {
		struct scene scene = scene_of(type);
		struct end *a, *b;

		pair_open(scene.fabric, &options, &a, &b);
		CHECK(qp_of(a)->engine == qp_of(scene.from)->engine); /* one channel */
		for (uint64_t i = 0; i < 2; i++)
			end_post_recv(b, i, 0, 64);
		end_start(a, IBV_WR_SEND, 0, 0, 8);
		cq_expect(b->recv_cq, 0, IBV_WC_SUCCESS);
		pace_begin(&pace);
		starve(&scene, 100);
		end_start(a, IBV_WR_SEND, 1, 0, 8);
		cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
		done = pace_holds(&pace, lost(scene.fabric));
		if (done) { /* and it is not lost: it waits */
			pace_begin(&pace);
			end_post_recv(scene.to, 1, 1024, 200);
			cq_expect(scene.to->recv_cq, 0, IBV_WC_SUCCESS);
			done = pace_holds(&pace, lost(scene.fabric));
		}
		if (done) {
			cq_expect(scene.to->recv_cq, 1, IBV_WC_SUCCESS);
			CHECK_PATTERN(scene.to->memory + 1024 + scene.header, 100, 1);
		} else {
			CHECK_EQ(end_modify(scene.to, IBV_QPS_ERR), 0);
		}
		pair_close(a, b);
		scene_end(&scene);
	}
}

static void a_datagram_without_a_receive_holds_up_no_reliable_connection(void)
{
	rc_passes_what_finds_no_receive(IBV_QPT_UD);
}

static void a_message_of_uc_without_a_receive_holds_up_no_reliable_connection(void)
{
	rc_passes_what_finds_no_receive(IBV_QPT_UC);
}

/* As much as the send queue takes, to a receiver that posts one receive after the other. */
static bool trickle(enum ibv_qp_type type, uint32_t bytes, uint64_t n, struct pace *pace)
{
	struct scene scene = scene_of(type);
	uint64_t sent = 0, completed = 0, got = 0;
	bool whole;

	pace_begin(pace);
	end_post_recv(scene.to, 0, 0, bytes + scene.header);
	while (got < n && !lost(scene.fabric)) {
		struct ibv_wc wc;

		for (; sent < n && sent - completed < 4; sent++) {
			uint32_t at = (uint32_t)(sent % 4) * 65536;

			pattern_fill(scene.from->memory + at, bytes, (uint32_t)sent);
			end_start(scene.from, IBV_WR_SEND, sent, at, bytes);
		}
		while (nupa_poll_cq(scene.from->send_cq, 1, &wc) == 1)
			CHECK_EQ(wc.wr_id, completed++);
		if (nupa_poll_cq(scene.to->recv_cq, 1, &wc) == 1) {
			CHECK_EQ(wc.wr_id, got);
			CHECK_EQ(wc.byte_len, bytes + scene.header);
			CHECK_PATTERN(scene.to->memory + scene.header, bytes, (uint32_t)got);
			end_post_recv(scene.to, ++got, 0, bytes + scene.header);
		}
		pace_step(pace);
	}
	whole = pace_holds(pace, lost(scene.fabric));
	CHECK_EQ(end_modify(scene.to, IBV_QPS_ERR), 0);
	scene_end(&scene);
	return whole;
}

static void a_slow_receiver_loses_nothing(void)
{
	static const uint32_t sizes[] = { 8, 100, NUPA_MTU_BYTES };
	struct pace pace = { 0 };

	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		while (!trickle(IBV_QPT_UD, sizes[i], 500, &pace))
			;
		while (!trickle(IBV_QPT_UC, sizes[i], 500, &pace))
			;
	}
	while (!trickle(IBV_QPT_UC, 40000, 50, &pace)) /* in parts */
		;
}

/* A WRITE by messages, and one that needs none. */
static bool write_behind(enum nupa_mover mover, struct pace *pace)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(mover);
	struct end *a, *b;
	bool whole;

	options.type = IBV_QPT_UC;
	pair_open(fabric, &options, &a, &b);
	pace_begin(pace);
	end_post_recv(b, 0, 0, 8);
	for (uint64_t i = 0; i < 2; i++) {
		end_start(a, IBV_WR_SEND, i, 0, 8);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
	}
	while (!nupa_load_acquire(&qp_of(b)->entry->backlog) && !lost(fabric))
		CHECK_EQ(nupa_poll_cq(b->send_cq, 1, &(struct ibv_wc){ 0 }), 0);
	memset(a->memory, 7, 64);
	end_start(a, IBV_WR_RDMA_WRITE, 2, 0, 64);
	for (int i = 0; i < 100; i++) {
		CHECK_EQ(nupa_poll_cq(b->send_cq, 1, &(struct ibv_wc){ 0 }), 0);
		CHECK(*(volatile uint8_t *)&b->memory[63] != 7 || lost(fabric));
	}
	end_post_recv(b, 1, 0, 8);
	cq_expect(b->recv_cq, 0, IBV_WC_SUCCESS);
	whole = pace_holds(pace, lost(fabric));
	if (whole) {
		cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
		cq_expect(a->send_cq, 2, IBV_WC_SUCCESS);
		end_post_recv(b, 2, 0, 8);
		end_start(a, IBV_WR_SEND, 3, 0, 8);
		cq_expect(b->recv_cq, 2, IBV_WC_SUCCESS);
		CHECK_EQ(b->memory[63], 7);
	}
	fabric_close(fabric, a, b);
	return whole;
}

static void what_comes_behind_a_message_of_uc_that_waits_stays_behind_it(void)
{
	struct pace pace = { 0 };

	while (!write_behind(NUPA_MOVER_RELAY, &pace))
		;
	while (!write_behind(NUPA_MOVER_NONE, &pace))
		;
}

static void what_no_receive_comes_for_is_dropped_and_counted_in_the_end(void)
{
	struct scene scene = scene_of(IBV_QPT_UD);
	uint64_t deadline_ns = test_now_ns() + WAIT_NS;

	starve(&scene, 100);
	while (lost(scene.fabric) != 1) {
		CHECK(test_now_ns() < deadline_ns);
		CHECK_EQ(nupa_poll_cq(scene.to->send_cq, 1, &(struct ibv_wc){ 0 }), 0);
	}
	/* From now on at once, until it posts one. */
	for (uint64_t i = 2; i < 10; i++) {
		send_filled(&scene, i, 100);
		while (lost(scene.fabric) != i)
			CHECK(test_now_ns() < deadline_ns);
	}
	end_post_recv(scene.to, 10, 0, 200);
	send_filled(&scene, 10, 100);
	cq_expect(scene.to->recv_cq, 0, IBV_WC_SUCCESS);
	cq_expect(scene.to->recv_cq, 10, IBV_WC_SUCCESS);
	scene_end(&scene);
}

static void a_program_that_has_polled_all_has_no_receive_to_come(void)
{
	struct scene scene = scene_of(IBV_QPT_UD);

	starve(&scene, 100);
	cq_expect(scene.to->recv_cq, 0, IBV_WC_SUCCESS);
	cq_expect_none(scene.to->recv_cq, MS);
	CHECK_EQ(waiting(&scene), 0);
	CHECK_EQ(lost(scene.fabric), 1);
	scene_end(&scene);
}

static void make_wait(struct scene *scene)
{
	uint64_t deadline_ns = test_now_ns() + WAIT_NS;

	starve(scene, 100);
	while (!waiting(scene) && !lost(scene->fabric)) {
		CHECK(test_now_ns() < deadline_ns);
		CHECK_EQ(nupa_poll_cq(scene->to->send_cq, 1, &(struct ibv_wc){ 0 }), 0);
	}
}

static void a_backlog_ends_with_its_queue_pair(void)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_UD, IBV_QPT_UC };

	for (int i = 0; i < 2; i++) {
		struct scene scene = scene_of(types[i]);
		struct end *to = scene.to;

		make_wait(&scene);
		CHECK_EQ(end_modify(to, IBV_QPS_ERR), 0);
		CHECK_EQ(waiting(&scene), 0);
		scene_end(&scene);

		scene = scene_of(types[i]);
		make_wait(&scene);
		CHECK_EQ(end_modify(scene.to, IBV_QPS_RESET), 0);
		CHECK_EQ(waiting(&scene), 0);
		scene_end(&scene);

		scene = scene_of(types[i]);
		make_wait(&scene);
		fabric_close(scene.fabric, scene.from, scene.to);
	}
}

static void a_backlog_outlives_its_sender_where_that_was_no_partner(void)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_UD, IBV_QPT_UC };

	for (int i = 0; i < 2; i++) {
		struct nupa_fabric *fabric = test_fabric();
		struct end_options options = options_of(types[i]);
		struct target target = target_fork(fabric);
		struct end *end = end_open(fabric, &options);
		struct nupa_engine *engine = qp_of(end)->engine;
		uint32_t n;

		target_open(&target, fabric, &options);
		target_connect(&target, &end->self);
		end_connect(end, &target.address);
		end_post_recv(end, 0, 0, 200);
		target_for_ever(&target, TARGET_SENDS, 100);
		while (!nupa_load_acquire(&qp_of(end)->entry->backlog) &&
		       !hw_of(fabric, 0).rx_no_receive)
			CHECK_EQ(nupa_poll_cq(end->send_cq, 1, &(struct ibv_wc){ 0 }), 0);
		target_kill(&target);
		for (bool broken = false; !broken;) {
			struct nupa_channel *channel;

			nupa_engine_lock(engine);
			channel = engine->channels[target.address.qpn >> NUPA_QP_INDEX_BITS];
			broken = !channel || channel->broken;
			n = qp_of(end)->backlog.n;
			nupa_engine_unlock(engine);
		}
		CHECK(types[i] == IBV_QPT_UD || !n);
		end_close(end);
		nupa_fabric_put(fabric);
	}
}

/* --- bounds ------------------------------------------------------------------------------ */

/* A sender that heeds no backlog. */
static void a_backlog_has_a_bound(void)
{
	struct scene scene = scene_of(IBV_QPT_UD);
	struct nupa_engine *engine = qp_of(scene.to)->engine;
	const uint64_t n = 5000;
	uint64_t most = 0;

	end_post_recv(scene.to, 0, 0, 200);
	for (uint64_t i = 0; i < n; i++) {
		uint32_t now;

		end_start(scene.from, IBV_WR_SEND, i, 0, 100);
		do
			nupa_store_relaxed(&engine->slot->backlogs, 0);
		while (nupa_poll_cq(scene.from->send_cq, 1, &(struct ibv_wc){ 0 }) == 0);
		now = waiting(&scene);
		most = now > most ? now : most;
	}
	CHECK(most && most <= 4096);
	nupa_engine_lock(engine);
	nupa_store_relaxed(&engine->slot->backlogs, qp_of(scene.to)->backlog.n != 0);
	nupa_engine_unlock(engine);
	CHECK_EQ(end_modify(scene.to, IBV_QPS_ERR), 0);
	scene_end(&scene);
}

/* A peer that says for ever that it has one, and that it shrinks. */
static void a_peer_that_claims_a_backlog_holds_no_sender_for_ever(void)
{
	struct scene scene = scene_of(IBV_QPT_UD);
	struct nupa_qp *to = qp_of(scene.to);
	struct nupa_slot *slot = to->engine->slot;
	uint64_t deadline_ns = test_now_ns() + WAIT_NS;

	send_filled(&scene, 0, 8);
	nupa_store_relaxed(&to->entry->backlog, 1);
	nupa_store_release(&slot->backlogs, 1);
	end_start(scene.from, IBV_WR_SEND, 1, 0, 8);
	while (nupa_poll_cq(scene.from->send_cq, 1, &(struct ibv_wc){ 0 }) == 0) {
		CHECK(test_now_ns() < deadline_ns);
		nupa_store_relaxed(&slot->backlog_moves, slot->backlog_moves + 1);
	}
	CHECK_EQ(hw_of(scene.fabric, 0).tx_no_room, 1);
	nupa_store_relaxed(&to->entry->backlog, 0);
	nupa_store_release(&slot->backlogs, 0);
	scene_end(&scene);
}

/* --- a shared receive queue -------------------------------------------------------------- */

static void a_reliable_connection_shares_an_empty_srq_with_a_backlog(void)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = options_of(IBV_QPT_UD);
	struct end *u, *v, a, b;

	options.srq_wr = 16;
	pair_open(fabric, &options, &u, &v);
	a = *u;
	b = *v;
	a.options.type = b.options.type = IBV_QPT_RC;
	a.qp = end_make_qp(&a);
	b.qp = end_make_qp(&b);
	a.self.qpn = a.qp->qp_num;
	b.self.qpn = b.qp->qp_num;
	end_connect(&a, &b.self);
	end_connect(&b, &a.self);
	end_post_recv(v, 0, 0, 200);
	for (uint64_t i = 0; i < 2; i++) {
		end_start(u, IBV_WR_SEND, i, 0, 100);
		cq_expect(u->send_cq, i, IBV_WC_SUCCESS);
	}
	end_start(&a, IBV_WR_SEND, 2, 0, 100);
	for (uint64_t i = 1; i < 4; i++)
		end_post_recv(v, i, (uint32_t)i * 1024, 200);
	cq_expect(a.send_cq, 2, IBV_WC_SUCCESS);
	cq_expect(v->recv_cq, 0, IBV_WC_SUCCESS);
	cq_expect(v->recv_cq, 1, IBV_WC_SUCCESS);
	CHECK_EQ(nupa_destroy_qp(a.qp), 0);
	CHECK_EQ(nupa_destroy_qp(b.qp), 0);
	fabric_close(fabric, u, v);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(datagrams_to_a_stopped_process_complete_and_are_counted),
		CASE(messages_of_uc_to_a_stopped_process_complete_and_are_counted),
		CASE(a_long_message_of_uc_breaks_off_at_a_stopped_process),
		CASE(a_datagram_without_a_receive_holds_up_no_reliable_connection),
		CASE(a_message_of_uc_without_a_receive_holds_up_no_reliable_connection),
		CASE(a_slow_receiver_loses_nothing),
		CASE(what_comes_behind_a_message_of_uc_that_waits_stays_behind_it),
		CASE(what_no_receive_comes_for_is_dropped_and_counted_in_the_end),
		CASE(a_program_that_has_polled_all_has_no_receive_to_come),
		CASE(a_backlog_ends_with_its_queue_pair),
		CASE(a_backlog_outlives_its_sender_where_that_was_no_partner),
		CASE(a_backlog_has_a_bound),
		CASE(a_peer_that_claims_a_backlog_holds_no_sender_for_ever),
		CASE(a_reliable_connection_shares_an_empty_srq_with_a_backlog),
	};

	return test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
