/* SPDX-License-Identifier: BSD-3-Clause
 * Keepers that come and go while a program runs. */
#include "engine/attachment/attachment.h"
#include "engine/core/engine.h"
#include "segment/port_protocol.h"
#include "tests/wire/keeper.h"
#include "wire/keeper.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define QP_INDEX 5u /* at the other end: any */

/* A keeper of NUPA's own, in a thread. */
struct real {
	struct nupa_fabric *fabric;
	struct nupa_keeper *keeper;
	uint8_t local[16], remote[16];
	char path[WIRED_PATH_BYTES];
	int wake;
	bool added;
	bool stands; /* it answers nobody, for now */
	pthread_t thread;
};

static void set_gid(uint8_t gid[16], uint32_t side)
{
	char text[INET_ADDRSTRLEN];

	wired_address(text, side);
	memset(gid, 0, 16);
	gid[10] = gid[11] = 0xff;
	CHECK_EQ(inet_pton(AF_INET, text, gid + 12), 1);
}

static void *keep(void *arg)
{
	struct real *real = arg;
	char text[2048], why[512] = "";
	int fd;

	if (nupa_keeper_add(real->keeper, WIRE_HOST, real->remote, NUPA_WIRE_UDP, real->path, "",
			    why, sizeof(why)) < 0) {
		fprintf(stderr, "%s\n", why);
		abort();
	}
	nupa_store_release(&real->added, true);
	while (nupa_load_acquire(&real->stands))
		sched_yield();
	while (nupa_keeper_run(real->keeper, real->wake, 1000, text, sizeof(text), &fd) ==
	       NUPA_KEEPER_TIME)
		;
	return NULL;
}

/* It begins; `added`: its wire is there. */
static void real_start(struct real *real, struct nupa_fabric *fabric, bool stands)
{
	char why[512] = "";

	memset(real, 0, sizeof(*real));
	real->fabric = fabric;
	real->stands = stands;
	set_gid(real->local, 0);
	set_gid(real->remote, 1);
	wired_path(real->path);
	real->wake = eventfd(0, EFD_CLOEXEC);
	real->keeper = nupa_keeper_open(fabric, real->local, why, sizeof(why));
	CHECK(real->keeper);
	CHECK_EQ(pthread_create(&real->thread, NULL, keep, real), 0);
}

static void real_await(const struct real *real)
{
	while (!nupa_load_acquire(&real->added))
		sched_yield();
}

static void real_end(struct real *real)
{
	CHECK_EQ(write(real->wake, &(uint64_t){ 1 }, sizeof(uint64_t)), sizeof(uint64_t));
	pthread_join(real->thread, NULL);
	close(real->wake);
	nupa_keeper_close(real->keeper);
	wired_path_remove(real->path);
}

/* The slot of the keeper, which attaches before its wire is there. */
static uint32_t await_attached(struct nupa_fabric *fabric)
{
	const uint64_t until_ns = test_now_ns() + WAIT_NS;

	for (;;) {
		for (uint32_t slot = 1; slot < fabric->geometry.n_slots; slot++)
			if (NUPA_CLAIM_STATE(nupa_slot_claim(&fabric->slots[slot])) ==
				NUPA_SLOT_LIVE &&
			    nupa_load_relaxed(&fabric->slots[slot].host) == WIRE_HOST)
				return slot;
		CHECK(test_now_ns() < until_ns);
		sched_yield();
	}
}

/* A packet for this QP comes, among the keeper's probes. */
static void await_packet(int far, uint32_t qpn)
{
	const uint64_t until_ns = test_now_ns() + WAIT_NS;
	struct pollfd came = { .fd = far, .events = POLLIN };
	uint8_t bth[12] = { 0 };

	do {
		CHECK(test_now_ns() < until_ns);
		CHECK_EQ(poll(&came, 1, WAIT_NS / MS), 1);
		CHECK(recv(far, bth, sizeof(bth), 0) > 0);
	} while (((uint32_t)bth[5] << 16 | (uint32_t)bth[6] << 8 | bth[7]) != qpn);
}

static void send_datagram(struct end *end)
{
	end_start(end, IBV_WR_SEND, 1, 0, 100);
	cq_expect(end->send_cq, 1, IBV_WC_SUCCESS);
}

/* While a keeper is replaced, programs go on sending to the other end.  The number of a QP there
 * may name the keeper's slot here: a channel that is opened by it would be no wire's, and stay. */
TEST(what_is_sent_before_the_wire_is_there_opens_no_other_way)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_defaults;
	struct end_address far = { .host = WIRE_HOST };
	struct nupa_channel *channel;
	struct nupa_engine *engine;
	struct real former, keeper;
	struct end *end;
	int blocker, far_end;

	options.type = IBV_QPT_UD;
	real_start(&former, fabric, false);
	real_await(&former);
	end = end_open(fabric, &options);
	engine = nupa_engine_of(end->context);
	memcpy(far.gid.raw, former.remote, 16);
	end_connect(end, &far);
	real_end(&former);
	/* Not shared: the keeper waits for it, with its attachment. */
	blocker = wired_socket(former.local, NUPA_WIRE_UDP_PORT);
	real_start(&keeper, fabric, false);
	end->peer.qpn = await_attached(fabric) << NUPA_QP_INDEX_BITS | QP_INDEX;
	CHECK(!nupa_load_acquire(&keeper.added));
	send_datagram(end); /* it is lost */
	CHECK(!nupa_load_acquire(&keeper.added));
	far_end = wired_socket(former.remote, NUPA_WIRE_UDP_PORT);
	close(blocker);
	real_await(&keeper);
	nupa_engine_lock(engine);
	channel = nupa_channel_meet(engine, end->peer.qpn >> NUPA_QP_INDEX_BITS);
	CHECK(channel && channel->wired);
	nupa_engine_unlock(engine);
	send_datagram(end);
	await_packet(far_end, end->peer.qpn);
	close(far_end);
	end_close(end);
	real_end(&keeper);
	nupa_fabric_put(fabric);
}

/* A keeper whose machine is busy has processes wait.  The port is no less a port after that. */
TEST(what_is_sent_before_the_keeper_answers_leaves_once_it_does)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_defaults;
	struct end_address far = { .host = WIRE_HOST, .qpn = QP_INDEX };
	struct real keeper;
	struct end *end;
	int far_end;

	options.type = IBV_QPT_UD;
	real_start(&keeper, fabric, true);
	real_await(&keeper);
	far_end = wired_socket(keeper.remote, NUPA_WIRE_UDP_PORT);
	end = end_open(fabric, &options);
	memcpy(far.gid.raw, keeper.remote, 16);
	end_connect(end, &far);
	send_datagram(end);
	nupa_store_release(&keeper.stands, false);
	await_packet(far_end, far.qpn);
	close(far_end);
	end_close(end);
	real_end(&keeper);
	nupa_fabric_put(fabric);
}

/* It was connected while there was no keeper, and has nothing to do with one that was there before.
 */
TEST(the_end_of_a_former_keeper_is_none_of_a_later_connection)
{
	const struct end_options options = end_defaults;
	struct nupa_channel *former;
	struct nupa_engine *engine;
	struct wired wired;
	struct nupa_qp *qp;

	wired_open(&wired, &options, 4096);
	engine = nupa_engine_of(wired.end_a->context);
	qp = container_of(wired.end_a->qp, struct nupa_qp, ibv);
	nupa_engine_lock(engine);
	former = qp->channel;
	qp->channel = NULL;
	nupa_channel_fail(engine, former);
	CHECK_EQ(qp->state, IBV_QPS_RTS);
	nupa_engine_unlock(engine);
	wired_close(&wired);
}
