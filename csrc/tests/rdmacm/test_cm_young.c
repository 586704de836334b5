/* SPDX-License-Identifier: BSD-3-Clause
 * Calls of rdma_cm since v60: events that a program writes, addresses looked up as an event. */
#include "tests/support/cm_end.h"
#include "tests/support/end.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

static struct cm_pair pair;

TEST(an_event_that_the_program_writes_comes_back_with_status_and_argument)
{
	const uint64_t arg = UINT64_C(0x55667788aabbccdd);
	struct rdma_event_channel *channel;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	pair = cm_pair_open();
	channel = pair.side[0].channel;
	id = cm_id(&pair.side[0], RDMA_PS_TCP);
	CHECK_EQ(rdma_write_cm_event(id, RDMA_CM_EVENT_USER, -77, arg), 0);
	CHECK_EQ(poll(&(struct pollfd){ channel->fd, POLLIN, 0 }, 1, 0), 1);
	event = cm_expect(channel, id, RDMA_CM_EVENT_USER, -77);
	CHECK_EQ(event->param.arg, arg);
	CHECK(!strcmp(rdma_event_str(event->event), "RDMA_CM_EVENT_USER"));
	CHECK_EQ(rdma_ack_cm_event(event), 0);

	CHECK_EQ(rdma_write_cm_event(id, RDMA_CM_EVENT_USER, 0, 0), 0);
	cm_destroy(id); /* the event that waits goes with it */
	CHECK_EQ(poll(&(struct pollfd){ channel->fd, POLLIN, 0 }, 1, 0), 0);
	cm_pair_close(&pair);
}

TEST(no_other_type_of_event_can_be_written)
{
	struct rdma_cm_id *id;

	pair = cm_pair_open();
	id = cm_id(&pair.side[0], RDMA_PS_TCP);
	for (int type = -1; type <= RDMA_CM_EVENT_INTERNAL + 1; type++) {
		if (type == RDMA_CM_EVENT_USER)
			continue;
		errno = 0;
		/* NOLINTNEXTLINE(clang-analyzer-optin.core.EnumCastOutOfRange): no type at all */
		CHECK_EQ(rdma_write_cm_event(id, (enum rdma_cm_event_type)type, 0, 0), -1);
		CHECK_EQ(errno, EINVAL);
	}
	cm_destroy(id);
	cm_pair_close(&pair);
}

TEST(an_address_is_resolved_as_an_event_and_queried_once)
{
	struct rdma_event_channel *channel;
	struct rdma_addrinfo *found;
	struct rdma_cm_id *id;

	pair = cm_pair_open();
	channel = pair.side[0].channel;
	id = cm_id(&pair.side[0], RDMA_PS_TCP);
	CHECK_EQ(rdma_query_addrinfo(id, &found), -1);
	CHECK_EQ(errno, ENODATA);
	CHECK_EQ(rdma_resolve_addrinfo(id, "10.0.0.2", "7471", NULL), 0);
	cm_expect_ack(channel, id, RDMA_CM_EVENT_ADDRINFO_RESOLVED, 0);
	CHECK_EQ(rdma_query_addrinfo(id, &found), 0);
	CHECK_EQ(found->ai_family, AF_INET);
	CHECK_EQ(((struct sockaddr_in *)(void *)found->ai_dst_addr)->sin_port, htons(7471));
	rdma_freeaddrinfo(found);
	CHECK_EQ(rdma_query_addrinfo(id, &found), -1);
	CHECK_EQ(rdma_resolve_addrinfo(id, "10.0.0.2", "7471", NULL), 0); /* freed with the id */
	cm_expect_ack(channel, id, RDMA_CM_EVENT_ADDRINFO_RESOLVED, 0);
	cm_destroy(id);
	cm_pair_close(&pair);
}

TEST(an_address_that_is_none_is_an_error_event)
{
	const struct rdma_addrinfo numeric = { .ai_flags = RAI_NUMERICHOST };
	struct rdma_event_channel *channel;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	pair = cm_pair_open();
	channel = pair.side[0].channel;
	id = cm_id(&pair.side[0], RDMA_PS_TCP);
	CHECK_EQ(rdma_resolve_addrinfo(id, "no address", NULL, &numeric), 0);
	CHECK_EQ(rdma_get_cm_event(channel, &event), 0);
	CHECK_EQ(event->event, RDMA_CM_EVENT_ADDRINFO_ERROR);
	CHECK(event->status != 0);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	cm_destroy(id);
	cm_pair_close(&pair);
}

TEST(records_of_a_subnet_administrator_are_refused)
{
	const struct rdma_addrinfo sa = { .ai_flags = RAI_SA },
				   both = { .ai_flags = RAI_SA | RAI_DNS };
	struct rdma_cm_id *id;

	pair = cm_pair_open();
	id = cm_id(&pair.side[0], RDMA_PS_TCP);
	CHECK_EQ(rdma_resolve_addrinfo(id, NULL, "service", &sa), -1);
	CHECK_EQ(errno, EOPNOTSUPP);
	CHECK_EQ(rdma_resolve_addrinfo(id, NULL, "service", &both), -1);
	CHECK_EQ(errno, EINVAL);
	cm_destroy(id);
	cm_pair_close(&pair);
}
