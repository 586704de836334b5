/* SPDX-License-Identifier: BSD-3-Clause
 * Moderated completion events, queues that change their size, and alternate paths. */
#include "tests/support/end.h"
#include "engine/device/device.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>

static bool event_is_there(struct end *end, int timeout_ms)
{
	struct pollfd readable = { .fd = end->channel->fd, .events = POLLIN };

	return poll(&readable, 1, timeout_ms) == 1;
}

static void get_event(struct end *end)
{
	struct ibv_cq *cq;
	void *context;

	CHECK_EQ(nupa_get_cq_event(end->channel, &cq, &context), 0);
	CHECK(cq == end->recv_cq);
	nupa_ack_cq_events(cq, 1);
}

static void moderate(struct end *end, uint16_t count, uint16_t period_us)
{
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE,
					   .moderate = { count, period_us } };

	CHECK_EQ(nupa_modify_cq(end->recv_cq, &attr), 0);
}

static void send_one(struct end *a, struct end *b, uint64_t i)
{
	end_post_recv(b, i, 0, 64);
	end_start(a, IBV_WR_SEND, i, 0, 8);
	cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
	cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
}

TEST(a_moderated_cq_tells_of_many_completions_at_once)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_defaults;
	struct end *a, *b;

	options.events = true;
	pair_open(fabric, &options, &a, &b);
	moderate(b, 4, UINT16_MAX);
	for (uint64_t round = 0; round < 3; round++) {
		CHECK_EQ(nupa_req_notify_cq(b->recv_cq, 0), 0);
		for (uint64_t i = 0; i < 4; i++) {
			CHECK(!event_is_there(b, 0));
			send_one(a, b, i);
		}
		CHECK(event_is_there(b, 0));
		get_event(b);
	}
	moderate(b, 0, 0); /* off */
	CHECK_EQ(nupa_req_notify_cq(b->recv_cq, 0), 0);
	send_one(a, b, 1);
	CHECK(event_is_there(b, 0));
	get_event(b);
	fabric_close(fabric, a, b);
}

TEST(a_moderated_cq_tells_when_its_time_is_over)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_defaults;
	struct end *a, *b;
	uint64_t start_ns;

	options.events = true;
	pair_open(fabric, &options, &a, &b);
	moderate(b, 100, 30000);
	CHECK_EQ(nupa_req_notify_cq(b->recv_cq, 0), 0);
	start_ns = test_now_ns();
	send_one(a, b, 1);
	CHECK(event_is_there(b, 10000)); /* no thread polls meanwhile */
	CHECK(test_now_ns() - start_ns >= 30 * MS);
	get_event(b);
	/* Completions that wait when the rules change are reported. */
	moderate(b, 100, UINT16_MAX);
	CHECK_EQ(nupa_req_notify_cq(b->recv_cq, 0), 0);
	send_one(a, b, 2);
	moderate(b, 100, UINT16_MAX);
	CHECK(event_is_there(b, 0));
	get_event(b);
	fabric_close(fabric, a, b);
}

TEST(a_cq_is_not_modified_in_other_ways)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *end = end_open(fabric, &end_defaults);
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_RESERVED };

	CHECK_EQ(nupa_modify_cq(end->recv_cq, &attr), EINVAL);
	end_close(end);
	nupa_fabric_put(fabric);
}

TEST(a_cq_that_ignores_overrun_keeps_the_youngest)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *a, *b;
	struct ibv_cq_init_attr_ex init = { .cqe = 4,
					    .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					    .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN };
	struct ibv_cq *own;

	a = end_open(fabric, &end_defaults);
	b = end_open(fabric, &end_defaults);
	own = b->recv_cq;
	CHECK_EQ(nupa_destroy_qp(b->qp), 0);
	b->recv_cq = ibv_cq_ex_to_cq(nupa_create_cq_ex(b->context, &init));
	b->qp = end_make_qp(b);
	b->self.qpn = b->qp->qp_num;
	end_connect(a, &b->self);
	end_connect(b, &a->self);
	for (uint64_t i = 0; i < 10; i++) {
		end_post_recv(b, i, 0, 64);
		end_start(a, IBV_WR_SEND, i, 0, 8);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
	}
	for (uint64_t i = 6; i < 10; i++)
		cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
	CHECK_EQ(end_state(b), IBV_QPS_RTS);
	CHECK_EQ(nupa_destroy_cq(own), 0);
	fabric_close(fabric, a, b);
}

struct resizing {
	struct ibv_cq *cq;
	bool stop;
	uint32_t times;
};

static void *resize_all_the_time(void *argument)
{
	struct resizing *resizing = argument;

	while (!__atomic_load_n(&resizing->stop, __ATOMIC_RELAXED)) {
		CHECK_EQ(nupa_resize_cq(resizing->cq, 64 + (int)(resizing->times * 37 % 1000)), 0);
		__atomic_store_n(&resizing->times, resizing->times + 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

TEST(a_cq_changes_its_size_under_load)
{
	struct nupa_fabric *fabric = test_fabric();
	struct resizing resizing = { 0 };
	pthread_t thread;
	struct end *a, *b;

	pair_open(fabric, &end_defaults, &a, &b);
	resizing.cq = b->recv_cq;
	CHECK_EQ(pthread_create(&thread, NULL, resize_all_the_time, &resizing), 0);
	for (uint64_t round = 0; round < 200 || !__atomic_load_n(&resizing.times, __ATOMIC_RELAXED);
	     round++) {
		for (uint64_t i = 0; i < 16; i++)
			end_post_recv(b, i, 0, 64);
		for (uint64_t i = 0; i < 16; i++)
			end_start(a, IBV_WR_SEND, i, 0, 8);
		for (uint64_t i = 0; i < 16; i++) {
			cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
			cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
		}
	}
	__atomic_store_n(&resizing.stop, true, __ATOMIC_RELAXED);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	fabric_close(fabric, a, b);
}

TEST(an_srq_changes_its_size_under_load)
{
	static const uint32_t sizes[] = { 64, 9, 33, 17, 8, 1000 };
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_defaults;
	struct ibv_srq_attr attr;
	struct end *a, *b;

	options.srq_wr = 16;
	pair_open(fabric, &options, &a, &b);
	for (uint64_t i = 0; i < 8; i++)
		end_post_recv(b, i, 0, 64);
	for (uint64_t i = 0; i < 60; i++) {
		attr = (struct ibv_srq_attr){ .max_wr = sizes[i % 6] };
		CHECK_EQ(nupa_modify_srq(b->srq, &attr, IBV_SRQ_MAX_WR), 0);
		CHECK_EQ(nupa_query_srq(b->srq, &attr), 0);
		CHECK_EQ(attr.max_wr, sizes[i % 6]);
		end_start(a, IBV_WR_SEND, i, 0, 8);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
		end_post_recv(b, i + 8, 0, 64);
	}
	attr.max_wr = 7; /* 8 are posted */
	CHECK_EQ(nupa_modify_srq(b->srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
	attr.max_wr = NUPA_SRQ_WR_MAX + 1;
	CHECK_EQ(nupa_modify_srq(b->srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
	attr = (struct ibv_srq_attr){ .max_wr = 20, .srq_limit = 3 };
	CHECK_EQ(nupa_modify_srq(b->srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), 0);
	CHECK_EQ(nupa_query_srq(b->srq, &attr), 0);
	CHECK_EQ(attr.srq_limit, 3);
	fabric_close(fabric, a, b);
}

static int set_path(struct end *end, const union ibv_gid *gid, uint8_t port,
		    enum ibv_mig_state state, int mask)
{
	struct ibv_qp_attr attr = {
		.path_mig_state = state,
		.alt_ah_attr = { .grh = { .dgid = *gid, .sgid_index = 1, .traffic_class = 8 },
				 .is_global = 1,
				 .port_num = 1 },
		.alt_port_num = port,
		.alt_timeout = 14,
	};

	return nupa_modify_qp(end->qp, &attr, mask);
}

TEST(an_alternate_path_is_armed_and_migrated_to)
{
	const int both = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
	struct nupa_fabric *fabric = test_fabric();
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct end *a, *b;

	pair_open(fabric, &end_defaults, &a, &b);
	CHECK_EQ(set_path(a, &b->self.gid, 1, IBV_MIG_REARM, IBV_QP_PATH_MIG_STATE), EINVAL);
	CHECK_EQ(set_path(a, &b->self.gid, 2, IBV_MIG_REARM, both), EINVAL);
	CHECK_EQ(set_path(a, &a->self.gid, 1, IBV_MIG_REARM, both), EINVAL); /* another host */
	CHECK_EQ(set_path(a, &b->self.gid, 1, IBV_MIG_ARMED, both), EINVAL);
	CHECK_EQ(set_path(a, &b->self.gid, 1, IBV_MIG_REARM, both), 0);
	CHECK_EQ(nupa_query_qp(a->qp, &attr, both, &init), 0);
	CHECK_EQ(attr.path_mig_state, IBV_MIG_ARMED);
	CHECK_EQ(attr.alt_port_num, 1);
	CHECK_EQ(attr.alt_timeout, 14);
	CHECK_EQ(set_path(a, &b->self.gid, 1, IBV_MIG_MIGRATED, IBV_QP_PATH_MIG_STATE), 0);
	end_expect_event(a, IBV_EVENT_PATH_MIG);
	CHECK_EQ(nupa_query_qp(a->qp, &attr, both, &init), 0);
	CHECK_EQ(attr.path_mig_state, IBV_MIG_MIGRATED);
	CHECK_EQ(attr.ah_attr.grh.traffic_class, 8);
	end_post_recv(b, 1, 0, 64);
	end_start(a, IBV_WR_SEND, 1, 0, 8);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
	fabric_close(fabric, a, b);
}
