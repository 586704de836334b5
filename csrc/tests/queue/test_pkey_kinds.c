/* SPDX-License-Identifier: BSD-3-Clause
 * Partitions and the kinds of traffic that have a way of their own: groups, and XRC with its
 * shadows in other processes. */
#include "tests/queue/xrc.h"
#include "tests/support/pkeys.h"

#include <unistd.h>

static const union ibv_gid group = { .raw = { 0xff, 0x0e, [15] = 7 } };

/* --- groups -------------------------------------------------------------------------- */

static struct end *member_open(struct nupa_fabric *fabric, int host, uint16_t pkey_index)
{
	struct end_options options = end_defaults;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .pkey_index = pkey_index, .port_num = 1, .qkey = TEST_QKEY
	};
	struct end *end;

	options.type = IBV_QPT_UD;
	options.host = host;
	end = end_open(fabric, &options);
	CHECK_EQ(nupa_modify_qp(end->qp, &attr,
				IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
		 0);
	end_to_rtr(end, &end->self);
	end_to_rts(end);
	CHECK_EQ(nupa_attach_mcast(end->qp, &group, 0), 0);
	end_post_recv(end, 1, 4096, 1000);
	return end;
}

static void member_close(struct end *end)
{
	CHECK_EQ(nupa_detach_mcast(end->qp, &group, 0), 0);
	end_close(end);
}

static void send_to_group(struct end *end)
{
	struct ibv_ah_attr attr = { .grh = { .dgid = group, .sgid_index = 1, .hop_limit = 3 },
				    .is_global = 1,
				    .port_num = 1 };
	struct request request = request_of(end, IBV_WR_SEND, 2, 0, 100);
	struct ibv_ah *ah = nupa_create_ah(end->pd, &attr);

	CHECK(ah);
	request.wr.wr.ud.ah = ah;
	request.wr.wr.ud.remote_qpn = 0xffffff;
	end_post(end, &request);
	cq_expect(end->send_cq, 2, IBV_WC_SUCCESS);
	CHECK_EQ(nupa_destroy_ah(ah), 0);
}

TEST(a_group_has_members_in_several_partitions_and_none_hears_another)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *sender, *same, *other;

	pkey_set(fabric, 0, 1, RED);
	pkey_set(fabric, 1, 1, RED);
	sender = member_open(fabric, 0, 1);
	same = member_open(fabric, 1, 1);
	other = member_open(fabric, 1, 0);
	send_to_group(sender);
	CHECK_EQ(cq_expect(same->recv_cq, 1, IBV_WC_SUCCESS).pkey_index, 1);
	for (uint64_t until = test_now_ns() + WAIT_NS; pkey_violations(fabric, 1) != 1;)
		CHECK(test_now_ns() < until);
	cq_expect_none(other->recv_cq, 0);
	member_close(sender);
	member_close(same);
	member_close(other);
	nupa_fabric_put(fabric);
}

TEST(a_group_reaches_no_host_outside_the_partitions)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *sender, *other;

	pkey_set(fabric, 0, 0, RED);
	sender = member_open(fabric, 0, 0);
	other = member_open(fabric, 1, 0);
	send_to_group(sender);
	cq_expect(sender->recv_cq, 1, IBV_WC_SUCCESS); /* its own copy */
	CHECK_EQ(pkey_violations(fabric, 1), 1);
	cq_expect_none(other->recv_cq, 0);
	member_close(sender);
	member_close(other);
	nupa_fabric_put(fabric);
}

/* --- XRC ----------------------------------------------------------------------------- */

/* Of the receiving QP's process, and of another one, where a shadow of that QP answers. */
TEST(xrc_of_another_partition_finds_no_answer)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = xrc_file();
	struct xrc_remote remote = xrc_remote_open(fabric, fd);
	struct xrc_side side = xrc_side_open(fabric, NUPA_MOVER_NONE, 1, fd);

	pkey_set(fabric, 0, 0, RED); /* both stay in the default partition as well */
	pkey_set(fabric, 0, 1, NUPA_PKEY_DEFAULT);
	pkey_set(fabric, 1, 1, NUPA_PKEY_DEFAULT);
	for (int i = 0; i < 2; i++) {
		struct xrc_sender sender = xrc_sender_open(fabric, NUPA_MOVER_NONE, &side);
		const uint64_t before = pkey_violations(fabric, 1);

		xrc_post(&sender, IBV_WR_SEND, i ? remote.srqn : side.srqn, 1, 200, 0, 0);
		cq_expect(sender.end->send_cq, 1, IBV_WC_RETRY_EXC_ERR);
		CHECK(pkey_violations(fabric, 1) > before);
		xrc_sender_close(&sender);
		CHECK_EQ(nupa_destroy_qp(side.target), 0);
		side.target = NULL;
	}
	xrc_side_close(&side);
	xrc_remote_close(&remote);
	close(fd);
	nupa_fabric_put(fabric);
}
