/* SPDX-License-Identifier: BSD-3-Clause
 * Watching a fabric: who may, and who records for whom. */
#include "base/atomics.h"
#include "tests/support/end.h"
#include "tests/capture/watched.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static char why[256];

TEST(a_send_is_seen_with_its_acknowledgement)
{
	/* SEND FIRST, LAST, ACK; WRITE ONLY, ACK; READ REQUEST, RESPONSE ONLY */
	static const uint32_t opcodes[] = { 0x00, 0x02, 0x11, 0x0a, 0x11, 0x0c, 0x10 };
	static const uint32_t psns[] = { 0, 1, 1, 2, 2, 3, 3 };
	struct nupa_fabric *fabric = test_fabric();
	uint32_t first;
	struct end *a, *b;
	struct nupa_watch *watch;

	pair_open(fabric, &end_defaults, &a, &b);
	watch = watched_open(fabric, NUPA_TRACE_TRANSPORT);
	pattern_fill(a->memory, 5000, 1);
	end_post_recv(b, 1, 0, 8192);
	end_start(a, IBV_WR_SEND, 2, 0, 5000);
	cq_expect(a->send_cq, 2, IBV_WC_SUCCESS);
	end_start(a, IBV_WR_RDMA_WRITE, 3, 0, 64);
	cq_expect(a->send_cq, 3, IBV_WC_SUCCESS);
	end_start(a, IBV_WR_RDMA_READ, 4, 0, 3000);
	cq_expect(a->send_cq, 4, IBV_WC_SUCCESS);
	watched_read(watch);
	first = a->self.psn;
	CHECK_EQ(n_packets, 7);
	for (uint32_t i = 0; i < n_packets; i++) {
		CHECK_EQ(watched_opcode(&packets[i]), opcodes[i]);
		CHECK_EQ(watched_psn(&packets[i]), first + psns[i]);
	}
	nupa_watch_close(watch);
	fabric_close(fabric, a, b);
}

static uint32_t word_of(const struct nupa_fabric *fabric)
{
	return nupa_load_relaxed(&fabric->sb->trace);
}

TEST(all_watches_together_say_what_is_recorded)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_watch *net, *queue;

	CHECK_EQ(word_of(fabric), 0);
	net = nupa_watch_open(fabric, NUPA_TRACE_NET, 96, NULL, 0, why, sizeof(why));
	CHECK_EQ(word_of(fabric), NUPA_TRACE_WORD(NUPA_TRACE_NET, 96));
	queue = nupa_watch_open(fabric, NUPA_TRACE_QUEUE, 64, NULL, 0, why, sizeof(why));
	CHECK_EQ(word_of(fabric), NUPA_TRACE_WORD(NUPA_TRACE_NET | NUPA_TRACE_QUEUE, 96));
	nupa_watch_stop(net);
	CHECK_EQ(word_of(fabric), NUPA_TRACE_WORD(NUPA_TRACE_QUEUE, 64));
	nupa_watch_close(net);
	nupa_watch_close(queue);
	CHECK_EQ(word_of(fabric), 0);
	nupa_fabric_put(fabric);
}

TEST(attachments_record_when_the_watch_is_open)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *a, *b;
	struct nupa_watch *watch;

	pair_open(fabric, &end_defaults, &a, &b);
	watch = watched_open(fabric, NUPA_TRACE_NET);
	for (uint32_t i = 1; i < fabric->geometry.n_slots; i++)
		if (NUPA_CLAIM_STATE(fabric->slots[i].claim) == NUPA_SLOT_LIVE)
			CHECK_EQ(nupa_load_relaxed(&fabric->slots[i].trace_seen), word_of(fabric));
	nupa_watch_close(watch);
	fabric_close(fabric, a, b);
}

TEST(no_more_watches_than_there_is_room_for)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_watch *watches[NUPA_WATCHERS_MAX];

	for (uint32_t i = 0; i < NUPA_WATCHERS_MAX; i++)
		watches[i] = watched_open(fabric, NUPA_TRACE_NET);
	CHECK(!nupa_watch_open(fabric, NUPA_TRACE_NET, 0, NULL, 0, why, sizeof(why)));
	CHECK_EQ(errno, EUSERS);
	nupa_watch_close(watches[3]);
	watches[3] = watched_open(fabric, NUPA_TRACE_NET);
	for (uint32_t i = 0; i < NUPA_WATCHERS_MAX; i++)
		nupa_watch_close(watches[i]);
	nupa_fabric_put(fabric);
}

TEST(levels_and_ports_that_do_not_exist_are_refused)
{
	struct nupa_fabric *fabric = test_fabric();
	const uint16_t port = (uint16_t)nupa_fabric_n_ports(fabric);

	CHECK(!nupa_watch_open(fabric, 0, 0, NULL, 0, why, sizeof(why)));
	CHECK_EQ(errno, EINVAL);
	CHECK(!nupa_watch_open(fabric, 32, 0, NULL, 0, why, sizeof(why)));
	CHECK_EQ(errno, EINVAL);
	CHECK(!nupa_watch_open(fabric, 1, 0, &port, 1, why, sizeof(why)));
	CHECK_EQ(errno, EINVAL);
	CHECK(strstr(why, "port"));
	CHECK_EQ(word_of(fabric), 0);
	nupa_fabric_put(fabric);
}

TEST(a_dead_watcher_is_forgotten)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_watch *watch;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0)
		_exit(nupa_watch_open(fabric, NUPA_TRACE_TLP, 0, NULL, 0, why, sizeof(why)) ? 0
											    : 1);
	CHECK_CHILD(pid);
	CHECK(NUPA_TRACE_LEVELS(word_of(fabric)) == NUPA_TRACE_TLP);
	watch = watched_open(fabric, NUPA_TRACE_NET);
	CHECK_EQ(NUPA_TRACE_LEVELS(word_of(fabric)), NUPA_TRACE_NET);
	nupa_watch_close(watch);
	CHECK_EQ(word_of(fabric), 0);
	nupa_fabric_put(fabric);
}
