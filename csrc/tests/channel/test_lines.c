/* SPDX-License-Identifier: BSD-3-Clause
 * Lines of the fast channel that were written, as the tags of rings say it. */
#include "tests/support/end.h"
#include "engine/device/device.h"
#include "segment/layout/geometry.h"
#include "segment/ring/lines.h"
#include "tests/support/recorder.h"

#include <errno.h>
#include <string.h>

static struct nupa_lines_info lines_of(struct nupa_fabric *fabric, uint32_t slot, uint32_t host)
{
	struct nupa_lines_info by_host[NUPA_HOSTS_MAX];

	CHECK_EQ(nupa_fabric_lines(fabric, slot, by_host), 0);
	return by_host[host];
}

static struct nupa_lines_info past_lines(struct nupa_fabric *fabric, uint32_t from, uint32_t to)
{
	struct nupa_lines_info lines;

	CHECK_EQ(nupa_fabric_past_lines(fabric, from, to, &lines), 0);
	return lines;
}

static void count_by_tags(struct nupa_fabric *fabric)
{
	struct recorder a = recorder_open(fabric, 0), b = recorder_open(fabric, 1);
	const struct nupa_arena_map map = nupa_arena_map(&fabric->geometry);
	const uint32_t n_lines = fabric->geometry.ring_lines;
	const uint64_t ring = map.rings_off + b.slot * map.ring_stride;
	struct nupa_ring_header *header = (void *)(nupa_fabric_arena(fabric, a.slot) + ring);
	struct nupa_msg *lines = (struct nupa_msg *)(header + 1);
	struct nupa_lines_info by_host[NUPA_HOSTS_MAX], found;

	CHECK(n_lines);
	CHECK_EQ(nupa_fabric_back(fabric, nupa_arena_offset(fabric, a.slot) + ring,
				  sizeof(*header) + n_lines * sizeof(*lines)),
		 0);
	*nupa_contact(fabric, a.slot, b.slot) = 1;
	nupa_store_release(&fabric->slots[a.slot].claim,
			   NUPA_CLAIM(nupa_fabric_owner(fabric), 1, NUPA_SLOT_LIVE));
	header->consumer = 2;
	for (uint32_t tail = 0; tail <= 3 * n_lines; tail++) {
		const uint32_t again = tail < n_lines ? 0 : tail - n_lines;

		found = lines_of(fabric, a.slot, 1);
		CHECK_EQ(found.first, tail - again);
		CHECK_EQ(found.again, again);
		CHECK_EQ(found.looks, (again + n_lines - 1) / n_lines);
		lines[tail % n_lines].tag++;
	}
	CHECK_EQ(lines_of(fabric, a.slot, 0).first, 0);
	header->consumer = 3; /* no such host */
	CHECK_EQ(lines_of(fabric, a.slot, 1).first, 0);
	header->consumer = 2;
	for (uint32_t i = 0; i < n_lines; i++) /* no ring has such lines: any number, no more */
		lines[i].tag = i * 0x9e3779b1u;
	CHECK_EQ(nupa_fabric_lines(fabric, a.slot, by_host), 0);
	CHECK_EQ(nupa_fabric_lines(fabric, 0, by_host), -EINVAL);
	CHECK_EQ(nupa_fabric_lines(fabric, fabric->geometry.n_slots, by_host), -EINVAL);
	CHECK_EQ(nupa_fabric_past_lines(fabric, 0, 2, &found), -EINVAL);
	CHECK_EQ(nupa_fabric_past_lines(fabric, 2, 0, &found), -EINVAL);
	recorder_close(&a);
	recorder_close(&b);
	nupa_fabric_put(fabric);
}

TEST(the_tags_of_a_ring_say_how_many_lines_it_had)
{
	count_by_tags(test_fabric());
}

/* It is mapped whole, and read in words. */
TEST(the_tags_of_a_ring_between_kernels_say_it_as_well)
{
	const struct nupa_config config = { .flags = NUPA_SEGMENT_MACHINES,
					    .segment_bytes = 256u << 20,
					    .ring_lines = TEST_RING_LINES,
					    .dma_bytes = TEST_DMA_BYTES };

	count_by_tags(test_fabric_of(&config));
}

static void send(struct end *a, struct end *b, uint32_t times)
{
	for (uint32_t i = 0; i < times; i++) {
		end_post_recv(b, i, 0, 100);
		end_start(a, IBV_WR_SEND, i, 0, 20);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
	}
}

TEST(lines_outlive_their_rings_and_their_writers)
{
	struct nupa_fabric *fabric = test_fabric_of_lines(16); /* too few to grow */
	const uint32_t n_lines = fabric->geometry.ring_lines;
	struct end_options options = end_defaults;
	struct nupa_lines_info there, back;
	struct end *a, *b;
	uint32_t slot;

	options.host = 1;
	pair_open(fabric, &end_defaults, &a, &b);
	slot = a->self.qpn >> 16;
	send(a, b, 3 * n_lines);
	there = lines_of(fabric, slot, 1);
	CHECK(there.first == n_lines && there.again == 2 * n_lines && there.looks == 2);
	back = lines_of(fabric, b->self.qpn >> 16, 0);
	CHECK(back.first == n_lines && back.again > 0); /* acknowledgements */
	CHECK_EQ(past_lines(fabric, 1, 0).first, 0);

	/* Another one in b's slot, to whom a opens the same ring. */
	end_close(b);
	CHECK(past_lines(fabric, 1, 0).first >= n_lines);
	CHECK(past_lines(fabric, 1, 0).again >= back.again);
	b = end_open(fabric, &options);
	CHECK_EQ(end_modify(a, IBV_QPS_RESET), 0);
	end_connect(a, &b->self);
	end_connect(b, &a->self);
	send(a, b, 10);
	there = lines_of(fabric, slot, 1);
	CHECK(there.first >= n_lines + 10 && there.first < n_lines + 20);
	CHECK_EQ(there.again, 2 * n_lines);

	end_close(a);
	CHECK_EQ(lines_of(fabric, slot, 1).first, 0);
	CHECK(past_lines(fabric, 0, 1).first >= there.first);
	CHECK_EQ(past_lines(fabric, 0, 1).again, 2 * n_lines);
	end_close(b);
	nupa_fabric_put(fabric);
}

TEST(lines_of_a_ring_that_grew_are_all_counted)
{
	struct nupa_fabric *fabric = test_fabric();
	const uint32_t n_lines = fabric->geometry.ring_lines;
	struct end *a, *b;
	struct nupa_engine *consumer;
	const struct nupa_tx *tx;
	uint32_t sent = 0, slot;

	pair_open(fabric, &end_defaults, &a, &b);
	slot = (uint32_t)nupa_context_slot(a->context);
	tx = &nupa_engine_of(a->context)->channels[nupa_context_slot(b->context)]->tx;
	consumer = nupa_engine_of(b->context);
	send(a, b, 1); /* they know each other */
	for (uint32_t i = 0; i < n_lines / 2; i++)
		end_post_recv(b, i, 0, 100);
	nupa_engine_lock(consumer); /* it takes nothing */
	for (; sent < n_lines / 2; sent++)
		end_start(a, IBV_WR_SEND, sent, 0, 20);
	CHECK_EQ(tx->n_lines, n_lines);
	nupa_engine_unlock(consumer);
	for (uint32_t i = 0; i < sent; i++) {
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
	}
	sent++;
	for (; sent < 3 * n_lines; sent++) {
		const struct nupa_lines_info there = lines_of(fabric, slot, 1);

		/* One line more says that the ring grows. */
		CHECK_EQ(there.first + there.again, sent + 1);
		CHECK_EQ(there.first, sent < n_lines ? sent : n_lines); /* that came round */
		send(a, b, 1);
	}
	end_close(a);
	CHECK(past_lines(fabric, 0, 1).again >= sent + 1 - n_lines);
	end_close(b);
	nupa_fabric_put(fabric);
}
