/* SPDX-License-Identifier: BSD-3-Clause
 * Multicast: who gets a datagram to a group, what is refused, and what a hostile or a stopped
 * member can do to others. */
#include "tests/support/end.h"
#include "engine/device/device.h"
#include "segment/layout/geometry.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define GROUP_QPN 0xffffffu
#define BYTES 100u

static const union ibv_gid group = { .raw = { 0xff, 0x0e, [15] = 7 } };
static const union ibv_gid ipv4_group = { .raw = { [10] = 0xff, 0xff, 239, 1, 2, 3 } };

static struct end *member_open(struct nupa_fabric *fabric, int host, const union ibv_gid *gid)
{
	struct end_options options = end_defaults;
	struct end *end;

	options.type = IBV_QPT_UD;
	options.host = host;
	end = end_open(fabric, &options);
	end_connect(end, &end->self);
	if (gid)
		CHECK_EQ(nupa_attach_mcast(end->qp, gid, 0), 0);
	return end;
}

static void member_close(struct end *end, const union ibv_gid *gid)
{
	if (gid)
		CHECK_EQ(nupa_detach_mcast(end->qp, gid, 0), 0);
	end_close(end);
}

static struct ibv_ah *group_ah(struct end *end, const union ibv_gid *gid)
{
	struct ibv_ah_attr attr = {
		.grh = { .dgid = *gid, .sgid_index = 1, .hop_limit = 3, .traffic_class = 9 },
		.is_global = 1,
		.port_num = 1,
	};
	struct ibv_ah *ah = nupa_create_ah(end->pd, &attr);

	CHECK(ah);
	return ah;
}

static void send_to(struct end *end, struct ibv_ah *ah, uint64_t wr_id, uint32_t bytes)
{
	struct request request = request_of(end, IBV_WR_SEND_WITH_IMM, wr_id, 0, bytes);

	request.wr.wr.ud.ah = ah;
	request.wr.wr.ud.remote_qpn = GROUP_QPN;
	request.wr.imm_data = 0x1234;
	end_post(end, &request);
	cq_expect(end->send_cq, wr_id, IBV_WC_SUCCESS);
}

static void expect_copy(struct end *end, const struct end *from, const union ibv_gid *gid,
			uint32_t bytes)
{
	struct ibv_wc wc = cq_expect(end->recv_cq, 1, IBV_WC_SUCCESS);
	struct ibv_grh grh;
	struct ibv_ah *back;

	CHECK_EQ(wc.byte_len, bytes + sizeof(grh));
	CHECK_EQ(wc.src_qp, from->qp->qp_num);
	CHECK_EQ(wc.qp_num, end->qp->qp_num);
	CHECK_EQ(wc.imm_data, 0x1234);
	CHECK_EQ(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
	memcpy(&grh, end->memory + 4096, sizeof(grh));
	CHECK(!memcmp(&grh.dgid, gid, sizeof(*gid)));
	CHECK(!memcmp(&grh.sgid, &from->self.gid, sizeof(*gid)));
	CHECK_PATTERN(end->memory + 4096 + sizeof(grh), bytes, 5);
	CHECK(back = nupa_create_ah_from_wc(end->pd, &wc, &grh, 1));
	CHECK_EQ(nupa_destroy_ah(back), 0);
}

static void reaches_all(const union ibv_gid *gid)
{
	static const uint32_t sizes[] = { 0, 1, 16, 17, NUPA_MTU_BYTES };
	struct nupa_fabric *fabric = test_fabric();
	struct end *members[4];
	struct end *other = member_open(fabric, 1, NULL);
	struct ibv_ah *ah;

	for (int i = 0; i < 4; i++)
		members[i] = member_open(fabric, i % 2, gid);
	ah = group_ah(members[0], gid);
	pattern_fill(members[0]->memory, NUPA_MTU_BYTES, 5);
	for (uint32_t size = 0; size < sizeof(sizes) / sizeof(sizes[0]); size++) {
		uint32_t bytes = sizes[size];

		end_post_recv(other, 1, 4096, 8192);
		for (int i = 0; i < 4; i++)
			end_post_recv(members[i], 1, 4096, 8192);
		send_to(members[0], ah, bytes, bytes);
		for (int i = 0; i < 4; i++) /* the sender's own among them */
			expect_copy(members[i], members[0], gid, bytes);
	}
	cq_expect_none(other->recv_cq, MS);
	CHECK_EQ(nupa_destroy_ah(ah), 0);
	for (int i = 0; i < 4; i++)
		member_close(members[i], gid);
	member_close(other, NULL);
	nupa_fabric_put(fabric);
}

TEST(a_datagram_to_a_group_reaches_each_member_on_each_host)
{
	reaches_all(&group);
}

TEST(an_ipv4_group_is_a_group_as_well)
{
	reaches_all(&ipv4_group);
}

TEST(a_sender_that_is_no_member_reaches_members)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *sender = member_open(fabric, 0, NULL);
	struct end *member = member_open(fabric, 1, &group);
	struct ibv_ah *ah = group_ah(sender, &group);

	pattern_fill(sender->memory, BYTES, 5);
	end_post_recv(sender, 1, 4096, 8192);
	end_post_recv(member, 1, 4096, 8192);
	send_to(sender, ah, 1, BYTES);
	expect_copy(member, sender, &group, BYTES);
	CHECK_EQ(nupa_detach_mcast(member->qp, &group, 0), 0);
	end_post_recv(member, 1, 4096, 8192);
	send_to(sender, ah, 2, BYTES); /* to a group without members */
	cq_expect_none(member->recv_cq, MS);
	cq_expect_none(sender->recv_cq, MS);
	CHECK_EQ(nupa_destroy_ah(ah), 0);
	member_close(member, NULL);
	member_close(sender, NULL);
	nupa_fabric_put(fabric);
}

TEST(a_queue_pair_made_to_block_its_own_does_not_hear_itself)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *a = member_open(fabric, 0, NULL), *b = member_open(fabric, 0, &group);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = a->send_cq,
		.recv_cq = a->recv_cq,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_UD,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
		.pd = a->pd,
		.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB,
	};
	struct ibv_ah *ah = group_ah(a, &group);

	CHECK_EQ(nupa_destroy_qp(a->qp), 0);
	CHECK_EQ(nupa_destroy_ah(a->ah), 0);
	CHECK(a->qp = nupa_create_qp_ex(a->context, &init));
	end_connect(a, &a->self);
	CHECK_EQ(nupa_attach_mcast(a->qp, &group, 0), 0);
	pattern_fill(a->memory, BYTES, 5);
	end_post_recv(a, 1, 4096, 8192);
	end_post_recv(b, 1, 4096, 8192);
	send_to(a, ah, 1, BYTES);
	expect_copy(b, a, &group, BYTES);
	cq_expect_none(a->recv_cq, MS);
	CHECK_EQ(nupa_destroy_ah(ah), 0);
	member_close(a, &group);
	member_close(b, &group);
	nupa_fabric_put(fabric);
}

TEST(a_member_without_the_q_key_or_a_receive_is_passed_over)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *sender = member_open(fabric, 0, NULL);
	struct end *other_key = member_open(fabric, 0, &group);
	struct end *member = member_open(fabric, 1, &group);
	struct ibv_qp_attr attr = { .qkey = TEST_QKEY + 1 };
	struct ibv_ah *ah = group_ah(sender, &group);
	struct request request;

	CHECK_EQ(nupa_modify_qp(other_key->qp, &attr, IBV_QP_QKEY), 0);
	pattern_fill(sender->memory, BYTES, 5);
	end_post_recv(other_key, 1, 4096, 8192);
	send_to(sender, ah, 1, BYTES); /* the member has nothing posted */
	end_post_recv(member, 1, 4096, 8192);
	send_to(sender, ah, 2, BYTES);
	expect_copy(member, sender, &group, BYTES);
	cq_expect_none(other_key->recv_cq, MS);
	cq_expect_none(member->recv_cq, MS);
	/* Only QP 0xffffff is the group. */
	end_post_recv(member, 1, 4096, 8192);
	request = request_of(sender, IBV_WR_SEND, 3, 0, BYTES);
	request.wr.wr.ud.ah = ah;
	request.wr.wr.ud.remote_qpn = member->qp->qp_num;
	end_post(sender, &request);
	cq_expect(sender->send_cq, 3, IBV_WC_SUCCESS);
	cq_expect_none(member->recv_cq, MS);
	CHECK_EQ(nupa_destroy_ah(ah), 0);
	member_close(member, &group);
	member_close(other_key, &group);
	member_close(sender, NULL);
	nupa_fabric_put(fabric);
}

TEST(attachments_to_no_group_or_of_no_datagram_qp_are_refused)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *rc, *peer, *ud = member_open(fabric, 0, NULL);
	union ibv_gid unicast = ipv4_group;

	unicast.raw[12] = 10;
	pair_open(fabric, &end_defaults, &rc, &peer);
	CHECK_EQ(nupa_attach_mcast(rc->qp, &group, 0), EINVAL);
	CHECK_EQ(nupa_attach_mcast(ud->qp, &unicast, 0), EINVAL);
	CHECK_EQ(nupa_detach_mcast(ud->qp, &group, 0), EINVAL);
	CHECK_EQ(nupa_attach_mcast(ud->qp, &group, 0xc001), 0);
	CHECK_EQ(nupa_attach_mcast(ud->qp, &group, 0xc001), 0); /* a second time changes nothing */
	CHECK_EQ(nupa_detach_mcast(ud->qp, &group, 0xc002), EINVAL);
	CHECK_EQ(nupa_destroy_qp(ud->qp), EBUSY);
	CHECK_EQ(nupa_detach_mcast(ud->qp, &group, 0xc001), 0);
	pair_close(rc, peer);
	member_close(ud, NULL);
	nupa_fabric_put(fabric);
}

static union ibv_gid group_number(uint32_t n)
{
	union ibv_gid gid = group;

	memcpy(&gid.raw[12], &n, sizeof(n));
	return gid;
}

TEST(one_more_than_the_limits_is_refused)
{
	const uint32_t qps_max = NUPA_MCAST_GROUP_QPS_MAX + 1;
	struct nupa_fabric *fabric = test_fabric();
	struct end *end = member_open(fabric, 0, NULL);
	struct ibv_qp *qps[NUPA_MCAST_GROUP_QPS_MAX + 1];
	union ibv_gid gid = group_number(0);

	for (uint32_t i = 0; i < qps_max; i++) {
		qps[i] = end_make_qp(end);
		CHECK_EQ(nupa_attach_mcast(qps[i], &gid, 0),
			 i < NUPA_MCAST_GROUP_QPS_MAX ? 0 : ENOMEM);
	}
	for (uint32_t i = 0; i < NUPA_MCAST_GROUP_QPS_MAX; i++)
		CHECK_EQ(nupa_detach_mcast(qps[i], &gid, 0), 0);
	for (uint32_t i = 0; i <= NUPA_MCAST_GROUPS_MAX; i++) {
		gid = group_number(i);
		CHECK_EQ(nupa_attach_mcast(qps[0], &gid, 0),
			 i < NUPA_MCAST_GROUPS_MAX ? 0 : ENOMEM);
	}
	for (uint32_t i = NUPA_MCAST_GROUPS_MAX; i <= NUPA_MCAST_MEMBERSHIPS_MAX; i++) {
		gid = group_number(i % NUPA_MCAST_GROUPS_MAX);
		CHECK_EQ(nupa_attach_mcast(qps[i / NUPA_MCAST_GROUPS_MAX], &gid, 0),
			 i < NUPA_MCAST_MEMBERSHIPS_MAX ? 0 : ENOMEM);
	}
	for (uint32_t i = 0; i < NUPA_MCAST_MEMBERSHIPS_MAX; i++) {
		gid = group_number(i % NUPA_MCAST_GROUPS_MAX);
		CHECK_EQ(nupa_detach_mcast(qps[i / NUPA_MCAST_GROUPS_MAX], &gid, 0), 0);
	}
	for (uint32_t i = 0; i < qps_max; i++)
		CHECK_EQ(nupa_destroy_qp(qps[i]), 0);
	member_close(end, NULL);
	nupa_fabric_put(fabric);
}

/* --- hostile and stopped members ------------------------------------------------------ */

TEST(a_table_of_nonsense_harms_no_one_else)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *sender = member_open(fabric, 0, &group),
		   *hostile = member_open(fabric, 1, NULL);
	struct nupa_engine *engine = nupa_engine_of(hostile->context);
	struct nupa_mcast_entry *table =
	    (void *)(engine->arena + nupa_arena_map(&fabric->geometry).mcast_off);
	struct ibv_ah *ah = group_ah(sender, &group);
	uint64_t seed = test_seed();

	pattern_fill(sender->memory, BYTES, 5);
	for (uint32_t round = 0; round < 20; round++) {
		for (uint32_t i = 0; i < NUPA_MCAST_MEMBERSHIPS_MAX; i++) {
			uint64_t random = test_random(&seed);

			memcpy(table[i].mgid, group.raw, sizeof(group.raw));
			table[i].qpn = (uint32_t)random;
			if (random >> 60 == 0) /* its own slot, any QP */
				table[i].qpn = engine->slot_index << NUPA_QP_INDEX_BITS |
					       ((uint32_t)random & 0xffff);
			if (random >> 60 == 1) /* a QP that is not a member */
				table[i].qpn = sender->qp->qp_num;
		}
		nupa_store_relaxed(&engine->slot->mcast_limit, UINT32_MAX);
		nupa_fetch_add_seq(&fabric->sb->mcast_epoch, 1);
		end_post_recv(sender, 1, 4096, 8192);
		end_post_recv(hostile, 1, 4096, 8192);
		send_to(sender, ah, round, BYTES);
		expect_copy(sender, sender, &group, BYTES);
	}
	cq_expect_none(sender->recv_cq, MS);  /* once for each */
	cq_expect_none(hostile->recv_cq, MS); /* which is not attached */
	nupa_store_relaxed(&engine->slot->mcast_limit, 0);
	CHECK_EQ(nupa_destroy_ah(ah), 0);
	member_close(hostile, NULL);
	member_close(sender, &group);
	nupa_fabric_put(fabric);
}

TEST(a_stopped_member_does_not_hold_the_others_back)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *sender, *member;
	struct ibv_ah *ah;
	int ready[2], status;
	char byte = 0;
	pid_t child;

	CHECK_EQ(pipe(ready), 0);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		member_open(fabric, 1, &group);
		CHECK_EQ(write(ready[1], &byte, 1), 1);
		for (;;)
			pause();
	}
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	sender = member_open(fabric, 0, NULL);
	member = member_open(fabric, 0, &group);
	ah = group_ah(sender, &group);
	pattern_fill(sender->memory, BYTES, 5);
	end_post_recv(member, 1, 4096, 8192);
	send_to(sender, ah, 0, BYTES);
	expect_copy(member, sender, &group, BYTES);
	CHECK_EQ(kill(child, SIGSTOP), 0);
	CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
	for (uint64_t i = 1; i <= 4 * TEST_RING_LINES; i++) {
		end_post_recv(member, 1, 4096, 8192);
		send_to(sender, ah, i, BYTES);
		expect_copy(member, sender, &group, BYTES);
	}
	CHECK_EQ(kill(child, SIGKILL), 0);
	CHECK_EQ(waitpid(child, &status, 0), child);
	end_post_recv(member, 1, 4096, 8192);
	send_to(sender, ah, 0, BYTES);
	expect_copy(member, sender, &group, BYTES);
	CHECK_EQ(nupa_destroy_ah(ah), 0);
	member_close(member, &group);
	member_close(sender, NULL);
	nupa_fabric_put(fabric);
}
