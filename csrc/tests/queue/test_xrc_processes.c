/* SPDX-License-Identifier: BSD-3-Clause
 * XRC across processes: SRQs of other processes than the receiving QP's, domains, and handles. */
#include "tests/queue/xrc.h"
#include "engine/device/device.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void serve_srqs_of_several_processes(struct nupa_fabric *fabric)
{
	int fd = xrc_file();
	struct xrc_remote remotes[2] = { xrc_remote_open(fabric, fd), xrc_remote_open(fabric, fd) };
	struct xrc_side side = xrc_side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct xrc_sender sender = xrc_sender_open(fabric, NUPA_MOVER_NONE, &side);

	for (uint32_t i = 1; i < 40; i++) {
		struct xrc_remote *remote = i % 3 < 2 ? &remotes[i % 3] : NULL;

		pattern_fill(sender.end->memory, 200, i);
		if (!remote) {
			xrc_post_receive(&side, side.srq, i);
			xrc_post(&sender, IBV_WR_SEND_WITH_IMM, side.srqn, i, 200, 0, 0);
			xrc_check_receive(&side, i, &sender, side.target->qp_num, 200);
		} else if (i % 2) {
			xrc_remote_say(remote, i);
			xrc_remote_hear(remote, i);
			xrc_post(&sender, IBV_WR_SEND_WITH_IMM, remote->srqn, i, 200, 0, 0);
			xrc_remote_hear(remote, 200);
		} else { /* first refused: not ready */
			xrc_post(&sender, IBV_WR_SEND_WITH_IMM, remote->srqn, i, 200, 0, 0);
			cq_expect_none(sender.end->send_cq, MS / 2);
			xrc_remote_say(remote, i);
			xrc_remote_hear(remote, i);
			xrc_remote_hear(remote, 200);
		}
		cq_expect(sender.end->send_cq, i, IBV_WC_SUCCESS);
	}
	/* Many at once: they go to one process after the other, in order. */
	xrc_remote_say(&remotes[0], 50);
	xrc_remote_hear(&remotes[0], 50);
	for (uint32_t i = 0; i < 4; i++)
		xrc_post_receive(&side, side.srq, 60 + i);
	pattern_fill(sender.end->memory, 200, 50);
	xrc_post(&sender, IBV_WR_SEND, side.srqn, 60, 200, 0, 0);
	xrc_post(&sender, IBV_WR_SEND, side.srqn, 61, 200, 0, 0);
	xrc_post(&sender, IBV_WR_SEND, remotes[0].srqn, 50, 200, 0, 0);
	xrc_post(&sender, IBV_WR_SEND, side.srqn, 62, 200, 0, 0);
	xrc_post(&sender, IBV_WR_SEND, side.srqn, 63, 200, 0, 0);
	cq_expect(sender.end->send_cq, 60, IBV_WC_SUCCESS);
	cq_expect(sender.end->send_cq, 61, IBV_WC_SUCCESS);
	cq_expect(sender.end->send_cq, 50, IBV_WC_SUCCESS);
	cq_expect(sender.end->send_cq, 62, IBV_WC_SUCCESS);
	cq_expect(sender.end->send_cq, 63, IBV_WC_SUCCESS);
	xrc_remote_hear(&remotes[0], 200);
	for (uint32_t i = 0; i < 4; i++)
		cq_expect(side.end->recv_cq, 60 + i, IBV_WC_SUCCESS);
	xrc_remote_close(&remotes[0]);
	xrc_remote_close(&remotes[1]);
	xrc_sender_close(&sender);
	xrc_side_close(&side);
	close(fd);
	nupa_fabric_put(fabric);
}

TEST(one_receiving_queue_pair_serves_srqs_of_several_processes)
{
	serve_srqs_of_several_processes(test_fabric());
}

TEST(srqs_are_served_while_messages_are_lost_doubled_and_out_of_order)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_fault_info faults[] = {
		fault_of(NUPA_FAULT_DROP, 0.02),
		fault_of(NUPA_FAULT_DUPLICATE, 0.4),
		fault_of(NUPA_FAULT_REORDER, 0.1),
	};

	for (uint32_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		faults[i].seed = test_seed();
		fault_add(fabric, &faults[i]);
	}
	serve_srqs_of_several_processes(fabric);
}

TEST(a_process_that_dies_with_its_srq_fails_what_waits_for_it)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = xrc_file(), status;
	struct xrc_remote remote = xrc_remote_open(fabric, fd);
	struct xrc_side side = xrc_side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct xrc_sender sender = xrc_sender_open(fabric, NUPA_MOVER_NONE, &side);

	pattern_fill(sender.end->memory, 200, 1);
	xrc_remote_say(&remote, 1);
	xrc_remote_hear(&remote, 1);
	xrc_post(&sender, IBV_WR_SEND, remote.srqn, 1, 200, 0, 0);
	cq_expect(sender.end->send_cq, 1, IBV_WC_SUCCESS);
	xrc_remote_hear(&remote, 200);
	xrc_post(&sender, IBV_WR_SEND, remote.srqn, 2, 200, 0, 0);
	cq_expect_none(sender.end->send_cq, MS);
	CHECK_EQ(kill(remote.pid, SIGKILL), 0);
	CHECK_EQ(waitpid(remote.pid, &status, 0), remote.pid);
	cq_expect(sender.end->send_cq, 2, IBV_WC_RETRY_EXC_ERR);
	xrc_sender_close(&sender);
	xrc_side_close(&side);
	close(fd);
	nupa_fabric_put(fabric);
}

TEST(domains_are_opened_as_flags_and_files_say)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = xrc_file(), remote_fd = xrc_file();
	struct xrc_remote remote = xrc_remote_open(fabric, remote_fd);
	struct end_options options = end_defaults;
	struct end *end;
	struct ibv_xrcd *xrcd, *again;

	options.host = 1;
	end = end_open(fabric, &options);
	CHECK(!xrc_domain(end->context, -1, 0));
	CHECK_EQ(errno, EINVAL);
	CHECK(!xrc_domain(end->context, fd, O_APPEND));
	CHECK_EQ(errno, EINVAL);
	CHECK(!xrc_domain(end->context, 1000, O_CREAT));
	CHECK_EQ(errno, EBADF);
	CHECK(!xrc_domain(end->context, fd, 0));
	CHECK_EQ(errno, EAGAIN);
	CHECK(xrcd = xrc_domain(end->context, fd, O_CREAT | O_EXCL));
	CHECK(!xrc_domain(end->context, fd, O_CREAT | O_EXCL));
	CHECK_EQ(errno, EINVAL);
	CHECK(again = xrc_domain(end->context, fd, 0));
	CHECK_EQ(nupa_close_xrcd(xrcd), 0);
	CHECK_EQ(nupa_close_xrcd(again), 0);
	CHECK(!xrc_domain(end->context, fd, 0));
	CHECK_EQ(errno, EAGAIN);
	/* Another process of the host has this one. */
	CHECK(!xrc_domain(end->context, remote_fd, O_CREAT | O_EXCL));
	CHECK_EQ(errno, EINVAL);
	CHECK(xrcd = xrc_domain(end->context, remote_fd, 0));
	CHECK_EQ(nupa_close_xrcd(xrcd), 0);
	xrc_remote_close(&remote);
	CHECK(!xrc_domain(end->context, remote_fd, 0));
	CHECK_EQ(errno, EAGAIN);
	end_close(end);
	close(fd);
	close(remote_fd);
	nupa_fabric_put(fabric);
}

TEST(a_process_has_so_many_domains_and_no_more)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *end = end_open(fabric, &end_defaults);
	struct ibv_xrcd *xrcds[NUPA_XRCD_MAX];

	for (uint32_t i = 0; i < NUPA_XRCD_MAX; i++)
		CHECK(xrcds[i] = xrc_domain(end->context, -1, O_CREAT));
	CHECK(!xrc_domain(end->context, -1, O_CREAT));
	CHECK_EQ(errno, ENOMEM);
	for (uint32_t i = 0; i < NUPA_XRCD_MAX; i++)
		CHECK_EQ(nupa_close_xrcd(xrcds[i]), 0);
	end_close(end);
	nupa_fabric_put(fabric);
}

TEST(a_receiving_queue_pair_lives_as_long_as_somebody_has_it_open)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = xrc_file();
	struct xrc_side side = xrc_side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct xrc_sender sender = xrc_sender_open(fabric, NUPA_MOVER_NONE, &side);
	struct ibv_qp *handle = xrc_open_qp(&side, side.target->qp_num);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK(handle);
	CHECK(!xrc_open_qp(&side, sender.qp->qp_num));
	CHECK(!xrc_open_qp(&side, side.target->qp_num + 1));
	CHECK_EQ(nupa_destroy_qp(side.target), 0);
	side.target = NULL;
	CHECK_EQ(nupa_query_qp(handle, &attr, IBV_QP_STATE, &init), 0);
	CHECK_EQ(attr.qp_state, IBV_QPS_RTR);
	xrc_post_receive(&side, side.srq, 1);
	pattern_fill(sender.end->memory, 100, 1);
	xrc_post(&sender, IBV_WR_SEND_WITH_IMM, side.srqn, 1, 100, 0, 0);
	cq_expect(sender.end->send_cq, 1, IBV_WC_SUCCESS);
	xrc_check_receive(&side, 1, &sender, handle->qp_num, 100);
	attr.qp_state = IBV_QPS_ERR;
	CHECK_EQ(nupa_modify_qp(handle, &attr, IBV_QP_STATE), 0);
	xrc_post(&sender, IBV_WR_SEND, side.srqn, 2, 100, 0, 0);
	cq_expect(sender.end->send_cq, 2, IBV_WC_RETRY_EXC_ERR);
	CHECK_EQ(nupa_destroy_qp(handle), 0);
	xrc_sender_close(&sender);
	xrc_side_close(&side);
	close(fd);
	nupa_fabric_put(fabric);
}

TEST(a_receiving_queue_pair_of_another_process_can_be_looked_at)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = xrc_file(), numbers[2], go[2], status;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_qp *handle;
	struct xrc_side side;
	uint32_t qpn;
	pid_t child;

	CHECK_EQ(pipe(numbers), 0);
	CHECK_EQ(pipe(go), 0);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		struct xrc_side theirs = xrc_side_open(fabric, NUPA_MOVER_NONE, 1, fd);
		struct ibv_qp *target = xrc_target(&theirs);

		CHECK_EQ(write(numbers[1], &target->qp_num, sizeof(qpn)), sizeof(qpn));
		CHECK_EQ(read(go[0], &qpn, 1), 1);
		_exit(0);
	}
	CHECK_EQ(read(numbers[0], &qpn, sizeof(qpn)), sizeof(qpn));
	side = xrc_side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	CHECK(handle = xrc_open_qp(&side, qpn));
	CHECK_EQ(nupa_query_qp(handle, &attr, IBV_QP_STATE, &init), 0);
	CHECK_EQ(attr.qp_state, IBV_QPS_RESET);
	CHECK_EQ(init.qp_type, IBV_QPT_XRC_RECV);
	attr.qp_state = IBV_QPS_ERR;
	CHECK_EQ(nupa_modify_qp(handle, &attr, IBV_QP_STATE), EOPNOTSUPP);
	CHECK_EQ(write(go[1], &qpn, 1), 1);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(nupa_destroy_qp(handle), 0);
	xrc_side_close(&side);
	close(fd);
	nupa_fabric_put(fabric);
}
