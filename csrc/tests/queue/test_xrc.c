/* SPDX-License-Identifier: BSD-3-Clause
 * XRC in one process: a sending QP, a receiving QP, and SRQs of its domain. */
#include "tests/queue/xrc.h"
#include "engine/device/device.h"

#include <errno.h>
#include <unistd.h>

static const uint32_t sizes[] = { 0, 1, 32, 33, 5000, 20000, 100000 };
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void send_all_sizes(enum nupa_mover mover)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = xrc_file();
	struct xrc_side side = xrc_side_open(fabric, mover, 1, fd);
	struct xrc_sender sender = xrc_sender_open(fabric, mover, &side);
	struct ibv_srq *second = xrc_srq(&side, side.end->pd);

	for (uint32_t i = 0; i < 3 * N_SIZES; i++) {
		struct ibv_srq *srq = i % 3 ? side.srq : second;

		xrc_post_receive(&side, srq, i);
		pattern_fill(sender.end->memory, sizes[i % N_SIZES], i);
		xrc_post(&sender, IBV_WR_SEND_WITH_IMM, xrc_number_of(srq), i, sizes[i % N_SIZES],
			 0, 0);
		cq_expect(sender.end->send_cq, i, IBV_WC_SUCCESS);
		xrc_check_receive(&side, i, &sender, side.target->qp_num, sizes[i % N_SIZES]);
	}
	CHECK_EQ(nupa_destroy_srq(second), 0);
	xrc_sender_close(&sender);
	xrc_side_close(&side);
	close(fd);
	nupa_fabric_put(fabric);
}

TEST(messages_reach_the_srq_that_they_name)
{
	send_all_sizes(NUPA_MOVER_NONE);
}

TEST(messages_reach_the_srq_that_they_name_by_relay)
{
	send_all_sizes(NUPA_MOVER_RELAY);
}

TEST(one_sided_operations_have_the_rights_of_the_srqs_protection_domain)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = xrc_file();
	struct xrc_side side = xrc_side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct xrc_sender sender = xrc_sender_open(fabric, NUPA_MOVER_NONE, &side);
	uint64_t there = (uintptr_t)side.end->memory, *word = (void *)side.end->memory;
	uint32_t rkey = side.end->mr->rkey;
	struct ibv_pd *other_pd = nupa_alloc_pd(side.end->context);
	struct ibv_srq *other = xrc_srq(&side, other_pd);
	struct ibv_wc wc;

	pattern_fill(sender.end->memory, 50000, 3);
	xrc_post(&sender, IBV_WR_RDMA_WRITE, side.srqn, 1, 50000, there, rkey);
	cq_expect(sender.end->send_cq, 1, IBV_WC_SUCCESS);
	CHECK_PATTERN(side.end->memory, 50000, 3);
	pattern_fill(side.end->memory, 50000, 4);
	xrc_post(&sender, IBV_WR_RDMA_READ, side.srqn, 2, 50000, there, rkey);
	cq_expect(sender.end->send_cq, 2, IBV_WC_SUCCESS);
	CHECK_PATTERN(sender.end->memory, 50000, 4);
	*word = 37;
	xrc_post(&sender, IBV_WR_ATOMIC_FETCH_AND_ADD, side.srqn, 3, 8, there, rkey);
	cq_expect(sender.end->send_cq, 3, IBV_WC_SUCCESS);
	CHECK_EQ(*word, 42);
	CHECK_EQ(*(uint64_t *)(void *)sender.end->memory, 37);
	xrc_post_receive(&side, side.srq, 4);
	xrc_post(&sender, IBV_WR_RDMA_WRITE_WITH_IMM, side.srqn, 4, 8, there, rkey);
	cq_expect(sender.end->send_cq, 4, IBV_WC_SUCCESS);
	wc = cq_expect(side.end->recv_cq, 4, IBV_WC_SUCCESS);
	CHECK_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	xrc_post(&sender, IBV_WR_RDMA_WRITE, xrc_number_of(other), 5, 8, there, rkey);
	cq_expect(sender.end->send_cq, 5, IBV_WC_REM_ACCESS_ERR);
	end_expect_event(side.end, IBV_EVENT_COMM_EST);
	end_expect_event(side.end, IBV_EVENT_QP_ACCESS_ERR);
	CHECK_EQ(nupa_destroy_srq(other), 0);
	CHECK_EQ(nupa_dealloc_pd(other_pd), 0);
	xrc_sender_close(&sender);
	xrc_side_close(&side);
	close(fd);
	nupa_fabric_put(fabric);
}

static void refused_with(uint32_t which)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = xrc_file(), other_fd = xrc_file();
	struct xrc_side side = xrc_side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct xrc_side other = xrc_side_open(fabric, NUPA_MOVER_NONE, 1, other_fd);
	struct xrc_side elsewhere = xrc_side_open(fabric, NUPA_MOVER_NONE, 0, fd);
	struct xrc_sender sender = xrc_sender_open(fabric, NUPA_MOVER_NONE, &side);
	const uint32_t numbers[] = { side.srqn + 9,  other.srqn,
				     elsewhere.srqn, 0,
				     UINT32_MAX,     200u << NUPA_QP_INDEX_BITS };

	xrc_post_receive(&side, side.srq, 1);
	xrc_post_receive(&other, other.srq, 1);
	xrc_post_receive(&elsewhere, elsewhere.srq, 1);
	xrc_post(&sender, IBV_WR_SEND, numbers[which], 1, 8, 0, 0);
	cq_expect(sender.end->send_cq, 1, IBV_WC_REM_INV_REQ_ERR);
	end_expect_event(side.end, IBV_EVENT_COMM_EST);
	end_expect_event(side.end, IBV_EVENT_QP_REQ_ERR);
	cq_expect_none(side.end->recv_cq, MS);
	cq_expect_none(other.end->recv_cq, MS);
	xrc_sender_close(&sender);
	xrc_side_close(&side);
	xrc_side_close(&other);
	xrc_side_close(&elsewhere);
	close(fd);
	close(other_fd);
	nupa_fabric_put(fabric);
}

TEST(srqs_that_are_not_there_or_not_in_the_domain_or_host_are_refused)
{
	for (uint32_t which = 0; which < 6; which++)
		refused_with(which);
}

TEST(without_a_receive_the_sender_tries_again)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = xrc_file();
	struct xrc_side side = xrc_side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct xrc_sender sender = xrc_sender_open(fabric, NUPA_MOVER_NONE, &side);

	pattern_fill(sender.end->memory, 100, 1);
	xrc_post(&sender, IBV_WR_SEND_WITH_IMM, side.srqn, 1, 100, 0, 0);
	cq_expect_none(sender.end->send_cq, 5 * MS);
	xrc_post_receive(&side, side.srq, 1);
	cq_expect(sender.end->send_cq, 1, IBV_WC_SUCCESS);
	xrc_check_receive(&side, 1, &sender, side.target->qp_num, 100);
	xrc_sender_close(&sender);
	xrc_side_close(&side);
	close(fd);
	nupa_fabric_put(fabric);
}

TEST(each_side_does_what_it_is_for_and_no_more)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = xrc_file();
	struct xrc_side side = xrc_side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct xrc_sender sender = xrc_sender_open(fabric, NUPA_MOVER_NONE, &side);
	struct ibv_recv_wr recv = { .wr_id = 1 }, *bad_recv = NULL;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad_send = NULL;
	struct ibv_qp_init_attr init = { .send_cq = side.end->send_cq,
					 .recv_cq = side.end->recv_cq,
					 .qp_type = IBV_QPT_XRC_RECV };
	struct ibv_qp_ex *ex = nupa_qp_to_qp_ex(sender.qp);

	CHECK_EQ(nupa_post_recv(sender.qp, &recv, &bad_recv), ENOMEM);
	CHECK_EQ(nupa_post_recv(side.target, &recv, &bad_recv), ENOMEM);
	CHECK_EQ(nupa_post_send(side.target, &send, &bad_send), EINVAL);
	CHECK(!nupa_create_qp(side.end->pd, &init));
	CHECK_EQ(errno, EINVAL);
	/* The extended calls name the SRQ as well. */
	xrc_post_receive(&side, side.srq, 1);
	pattern_fill(sender.end->memory, 40, 1);
	ex->wr_start(ex);
	ex->wr_id = 1;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ex->wr_send(ex);
	ex->wr_set_xrc_srqn(ex, side.srqn);
	ex->wr_set_sge(ex, sender.end->mr->lkey, (uintptr_t)sender.end->memory, 40);
	CHECK_EQ(ex->wr_complete(ex), 0);
	cq_expect(sender.end->send_cq, 1, IBV_WC_SUCCESS);
	cq_expect(side.end->recv_cq, 1, IBV_WC_SUCCESS);
	CHECK_PATTERN(side.end->memory, 40, 1);
	xrc_sender_close(&sender);
	xrc_side_close(&side);
	close(fd);
	nupa_fabric_put(fabric);
}

TEST(completions_stay_when_the_receiving_queue_pair_goes)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = xrc_file();
	struct xrc_side side = xrc_side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct xrc_sender sender = xrc_sender_open(fabric, NUPA_MOVER_NONE, &side);
	uint32_t qpn = side.target->qp_num;

	xrc_post_receive(&side, side.srq, 1);
	pattern_fill(sender.end->memory, 100, 1);
	xrc_post(&sender, IBV_WR_SEND_WITH_IMM, side.srqn, 1, 100, 0, 0);
	cq_expect(sender.end->send_cq, 1, IBV_WC_SUCCESS);
	CHECK_EQ(nupa_destroy_qp(side.target), 0);
	side.target = NULL;
	xrc_check_receive(&side, 1, &sender, qpn, 100);
	xrc_sender_close(&sender);
	xrc_side_close(&side);
	close(fd);
	nupa_fabric_put(fabric);
}

TEST(an_rc_queue_pair_is_no_partner_of_a_receiving_one)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = xrc_file();
	struct xrc_side side = xrc_side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct end_options options = end_defaults;
	struct end_address target = side.end->self;
	struct end *rc;

	options.timeout = 8;
	options.retry_cnt = 1;
	rc = end_open(fabric, &options);
	side.target = xrc_target(&side);
	xrc_to_rtr(side.target, rc, rc->qp->qp_num);
	target.qpn = side.target->qp_num;
	end_connect(rc, &target);
	xrc_post_receive(&side, side.srq, 1);
	end_start(rc, IBV_WR_RDMA_WRITE, 1, 0, 8);
	cq_expect(rc->send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	cq_expect_none(side.end->recv_cq, MS);
	end_close(rc);
	xrc_side_close(&side);
	close(fd);
	nupa_fabric_put(fabric);
}
