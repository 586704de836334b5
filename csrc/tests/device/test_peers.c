/* SPDX-License-Identifier: BSD-3-Clause
 * Many peers: the descriptors of a process do not grow with them, the death of each is told, and
 * rings that a program does not look at are announced (attention.h).  These tests hold the lock:
 * the port thread, which looks at all rings, cannot help. */
#include "engine/attachment/attachment.h"
#include "tests/support/target.h"

#include <dirent.h>
#include <pthread.h>

#define PEERS 48u
#define DESCRIPTORS 80u /* for all of them together */

struct many {
	struct nupa_fabric *fabric;
	struct end *end;
	struct end ends[PEERS];
	struct target targets[PEERS];
};

static uint32_t descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	uint32_t n = 0;

	CHECK(folder);
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

/* Each peer is a process, and has got a WRITE. */
static void many_open(struct many *m)
{
	struct end_options options = end_defaults;

	options.memory_bytes = 65536;
	options.timeout = 0; /* for ever: it is the death that counts */
	m->fabric = test_fabric_of(&(struct nupa_config){ .slots = PEERS + 4 });
	for (uint32_t i = 0; i < PEERS; i++)
		m->targets[i] = target_fork(m->fabric);
	m->end = end_open(m->fabric, &options);
	options.host = 1;
	for (uint32_t i = 0; i < PEERS; i++) {
		struct end *end = &m->ends[i];

		*end = *m->end;
		end->qp = end_make_qp(m->end);
		end->self.qpn = end->qp->qp_num;
		target_open(&m->targets[i], m->fabric, &options);
		target_connect(&m->targets[i], &end->self);
		end_connect(end, &m->targets[i].address);
		pattern_fill(end->memory, 4096, i);
		end_start(end, IBV_WR_RDMA_WRITE, i, 0, 4096);
		cq_expect(end->send_cq, i, IBV_WC_SUCCESS);
		target_check(&m->targets[i], 0, 4096, i);
	}
}

static void many_close(struct many *m)
{
	for (uint32_t i = 0; i < PEERS; i++) {
		CHECK_EQ(nupa_destroy_qp(m->ends[i].qp), 0);
		if (m->targets[i].pid)
			target_close(&m->targets[i]);
	}
	end_close(m->end);
	nupa_fabric_put(m->fabric);
}

TEST(descriptors_do_not_grow_with_peers)
{
	struct many m;
	uint32_t before = descriptors() + PEERS; /* the targets' sockets */

	many_open(&m);
	printf("  %u descriptors for %u peers\n", descriptors() - before, PEERS);
	CHECK(descriptors() <= before + DESCRIPTORS);
	many_close(&m);
}

/* Of the first, which has descriptors; of the last, which has none; and with room again. */
TEST(the_death_of_each_is_told)
{
	static const uint32_t victims[] = { 0, PEERS - 1, PEERS - 2, 1 };
	struct many m;

	many_open(&m);
	for (uint32_t i = 0; i < sizeof(victims) / sizeof(victims[0]); i++) {
		struct end *end = &m.ends[victims[i]];

		end_start(end, IBV_WR_SEND, 1000, 0, 8); /* it has no receive */
		target_kill(&m.targets[victims[i]]);
		m.targets[victims[i]].pid = 0;
		cq_expect(end->send_cq, 1000, IBV_WC_RETRY_EXC_ERR);
	}
	for (uint32_t i = 2; i < PEERS - 2; i++) { /* the others live */
		end_start(&m.ends[i], IBV_WR_RDMA_WRITE, i, 0, 8);
		cq_expect(m.end->send_cq, i, IBV_WC_SUCCESS);
	}
	many_close(&m);
}

/* A program that spins looks at few of them in each turn (nupa_engine_turn). */
TEST(a_program_that_spins_hears_all)
{
	const uint64_t until_ns = test_now_ns() + WAIT_NS;
	struct many m;
	struct ibv_wc wc;

	many_open(&m);
	while (!nupa_engine_looks_at_some(nupa_engine_of(m.end->context))) {
		CHECK_EQ(nupa_poll_cq(m.end->send_cq, 1, &wc), 0);
		CHECK(test_now_ns() < until_ns);
	}
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < PEERS; i++) { /* its acknowledgement has to come */
			target_post_recv(&m.targets[i], round, 0, 8);
			end_start(&m.ends[i], IBV_WR_SEND, i, 0, 8);
			cq_expect(m.end->send_cq, i, IBV_WC_SUCCESS);
			target_expect(&m.targets[i], round, IBV_WC_SUCCESS);
		}
	}
	many_close(&m);
}

/* --- attention ----------------------------------------------------------------------- */

static bool is_attended(const struct nupa_engine *engine, const struct end *to)
{
	const uint32_t peer = to->peer.qpn >> NUPA_QP_INDEX_BITS;

	CHECK_EQ(engine->open[engine->channels[peer]->place], engine->channels[peer]);
	return engine->channels[peer]->place < engine->n_attended;
}

/* With the lock: nothing has come since the review before. */
static void leave_all(struct nupa_engine *engine)
{
	nupa_engine_progress(engine);
	nupa_attention_review(engine);
	nupa_attention_review(engine);
	CHECK_EQ(engine->n_attended, nupa_attention_kept);
	CHECK_EQ(engine->slot->leaves_some, 1);
}

/* With the lock: a turn finds it, by what its peer announces. */
static void await(struct nupa_engine *engine, struct ibv_cq *ibv)
{
	const struct nupa_cq *cq = container_of(ibv, struct nupa_cq, ibv);
	const uint64_t until_ns = test_now_ns() + WAIT_NS;

	while (cq->head == cq->tail) {
		nupa_engine_turn(engine);
		CHECK(test_now_ns() < until_ns);
	}
}

TEST(an_unattended_peer_announces_what_it_sends)
{
	struct nupa_engine *engine;
	struct many m;

	many_open(&m);
	engine = nupa_engine_of(m.end->context);
	for (uint32_t round = 0; round < 3; round++) {
		nupa_engine_lock(engine);
		leave_all(engine);
		nupa_engine_unlock(engine);
		for (uint32_t i = 0; i < PEERS; i++) {
			target_post_recv(&m.targets[i], round, 0, 8);
			end_start(&m.ends[i], IBV_WR_SEND, i, 0, 8);
			nupa_engine_lock(engine);
			await(engine, m.end->send_cq); /* its acknowledgement */
			CHECK(is_attended(engine, &m.ends[i]));
			nupa_engine_unlock(engine);
			cq_expect(m.end->send_cq, i, IBV_WC_SUCCESS);
			target_expect(&m.targets[i], round, IBV_WC_SUCCESS);
		}
	}
	many_close(&m);
}

/* It dies after it has sent, and before it announces that. */
TEST(what_an_unattended_peer_sent_before_its_death_counts)
{
	const uint64_t until_ns = test_now_ns() + WAIT_NS;
	uint64_t *announced, *unattended, bit;
	struct nupa_engine *engine;
	uint32_t i = 0, peer;
	struct many m;

	many_open(&m);
	engine = nupa_engine_of(m.end->context);
	nupa_engine_lock(engine);
	leave_all(engine);
	while (is_attended(engine, &m.ends[i]))
		i++;
	nupa_engine_unlock(engine);
	peer = m.ends[i].peer.qpn >> NUPA_QP_INDEX_BITS;
	bit = UINT64_C(1) << peer % 64;
	announced = &engine->slot->announced[peer / 64];
	unattended = &engine->slot->unattended[peer / 64];
	target_post_recv(&m.targets[i], 0, 0, 8);
	target_stop(&m.targets[i]);
	end_start(&m.ends[i], IBV_WR_SEND, 1, 0, 8);
	nupa_engine_lock(engine);
	CHECK(!is_attended(engine, &m.ends[i]) && *unattended & bit);
	target_continue(&m.targets[i]);
	while (!(nupa_load_relaxed(announced) & bit))
		CHECK(test_now_ns() < until_ns);
	(void)nupa_exchange_seq(announced, 0);
	engine->calls_seen = nupa_engine_calls(engine);
	target_kill(&m.targets[i]);
	m.targets[i].pid = 0;
	nupa_engine_unlock(engine);
	cq_expect(m.end->send_cq, 1, IBV_WC_SUCCESS);
	nupa_engine_lock(engine);
	while (engine->channels[peer] && !engine->channels[peer]->broken) {
		nupa_engine_turn(engine);
		CHECK(test_now_ns() < until_ns);
	}
	CHECK(!(*unattended & bit));
	nupa_engine_unlock(engine);
	many_close(&m);
}

#define MESSAGES 4000u

struct sender {
	struct end *end;
	uint32_t received; /* by the other end */
	bool done;
};

static void *send_one_by_one(void *arg)
{
	uint64_t random = test_seed() | 1;
	struct sender *sender = arg;

	for (uint32_t i = 0; i < MESSAGES; i++) {
		const uint64_t until_ns = test_now_ns() + WAIT_NS;

		for (uint64_t pause = test_random(&random) % 256; pause; pause--)
			nupa_cpu_pause();
		end_start(sender->end, IBV_WR_SEND, i, 0, 8);
		while (nupa_load_acquire(&sender->received) <= i)
			if (test_now_ns() > until_ns) {
				fprintf(stderr, "message %u is overlooked\n", i);
				abort();
			}
		cq_expect(sender->end->send_cq, i, IBV_WC_SUCCESS);
	}
	nupa_store_release(&sender->done, true);
	return NULL;
}

/* Its ring is left again and again, at any moment of each SEND. */
TEST(no_message_is_overlooked_while_its_ring_is_left)
{
	struct end_options options = end_defaults;
	struct sender sender = { 0 };
	struct nupa_fabric *fabric = test_fabric();
	uint64_t random = test_seed() | 1;
	struct nupa_engine *engine;
	struct end *a, *b;
	pthread_t thread;
	uint32_t announcements;

	nupa_attention_kept = 0;
	options.recv_wr = MESSAGES;
	options.recv_cqe = (int)MESSAGES;
	pair_open(fabric, &options, &a, &b);
	for (uint32_t i = 0; i < MESSAGES; i++)
		end_post_recv(a, i, 0, 8);
	sender.end = b;
	engine = nupa_engine_of(a->context);
	nupa_engine_lock(engine);
	CHECK_EQ(pthread_create(&thread, NULL, send_one_by_one, &sender), 0);
	while (!nupa_load_acquire(&sender.done)) {
		nupa_engine_turn(engine);
		nupa_store_release(&sender.received,
				   (uint32_t)container_of(a->recv_cq, struct nupa_cq, ibv)->tail);
		if (test_random(&random) % 64 == 0)
			nupa_attention_review(engine);
	}
	announcements = nupa_load_relaxed(&engine->slot->announcements);
	nupa_engine_unlock(engine);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	printf("  %u of %u SENDs were announced\n", announcements, MESSAGES);
	CHECK(announcements > 0);
	fabric_close(fabric, a, b);
}
