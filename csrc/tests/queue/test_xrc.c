/* SPDX-License-Identifier: BSD-3-Clause
 * XRC: a sending QP, a receiving QP, and SRQs of its domain in this process and in another. */
#include "engine/device/device.h"
#include "tests/support/faults.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALL_ACCESS                                                                                 \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)

static const uint32_t sizes[] = { 0, 1, 32, 33, 5000, 20000, 100000 };
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* A file that domains are known by: nobody but us has it. */
static int domain_file(void)
{
	int fd = memfd_create("xrcd", MFD_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

static struct ibv_xrcd *open_domain(struct ibv_context *context, int fd, int oflags)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd,
		.oflags = oflags,
	};

	return nupa_open_xrcd(context, &attr);
}

/* What receives: a domain with an SRQ whose completions go to end->recv_cq. */
struct side {
	struct end *end; /* its context, PD, CQs, region; its QP is not used */
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq;
	uint32_t srqn;
	struct ibv_qp *target;
};

static struct ibv_srq *make_srq(struct side *side, struct ibv_pd *pd)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = 16, .max_sge = 2 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = pd,
		.xrcd = side->xrcd,
		.cq = side->end->recv_cq,
	};
	struct ibv_srq *srq = nupa_create_srq_ex(side->end->context, &init);

	CHECK(srq);
	return srq;
}

static uint32_t number_of(struct ibv_srq *srq)
{
	uint32_t number = 0;

	CHECK_EQ(nupa_get_srq_num(srq, &number), 0);
	return number;
}

static struct side side_open(struct nupa_fabric *fabric, enum nupa_mover mover, int host, int fd)
{
	struct end_options options = end_options_of(mover);
	struct side side = { 0 };

	options.host = host;
	side.end = end_open(fabric, &options);
	CHECK(side.xrcd = open_domain(side.end->context, fd, O_CREAT));
	side.srq = make_srq(&side, side.end->pd);
	side.srqn = number_of(side.srq);
	return side;
}

static struct ibv_qp *make_target(struct side *side)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = side->xrcd,
	};
	struct ibv_qp *qp = nupa_create_qp_ex(side->end->context, &init);

	CHECK(qp);
	return qp;
}

static struct ibv_qp *make_initiator(struct end *end)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = end->send_cq,
		.cap = { .max_send_wr = 32, .max_send_sge = 2, .max_inline_data = 64 },
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = end->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct ibv_qp *qp = nupa_create_qp_ex(end->context, &init);

	CHECK(qp);
	return qp;
}

static void to_rtr(struct ibv_qp *qp, struct end *peer, uint32_t peer_qpn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = ALL_ACCESS,
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	CHECK_EQ(
	    nupa_modify_qp(qp, &attr,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	    0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer_qpn,
		.rq_psn = 0xfffff8,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = { .grh = { .dgid = peer->self.gid, .sgid_index = 1, .hop_limit = 1 },
			     .is_global = 1,
			     .port_num = 1 },
	};
	if (qp->qp_type != IBV_QPT_XRC_SEND)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	CHECK_EQ(nupa_modify_qp(qp, &attr, mask), 0);
}

static void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = 0xfffff8,
		.timeout = 12,
		.retry_cnt = 3,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};

	CHECK_EQ(nupa_modify_qp(qp, &attr,
				IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
		 0);
}

/* A sender on host 0, connected to the target of a side. */
struct sender {
	struct end *end;
	struct ibv_qp *qp;
};

static struct sender sender_open(struct nupa_fabric *fabric, enum nupa_mover mover,
				 struct side *side)
{
	struct end_options options = end_options_of(mover);
	struct sender sender = { 0 };

	sender.end = end_open(fabric, &options);
	sender.qp = make_initiator(sender.end);
	side->target = make_target(side);
	to_rtr(side->target, sender.end, sender.qp->qp_num);
	to_rtr(sender.qp, side->end, side->target->qp_num);
	to_rts(sender.qp);
	return sender;
}

static void sender_close(struct sender *sender)
{
	CHECK_EQ(nupa_destroy_qp(sender->qp), 0);
	end_close(sender->end);
}

static void side_close(struct side *side)
{
	if (side->target)
		CHECK_EQ(nupa_destroy_qp(side->target), 0);
	CHECK_EQ(nupa_close_xrcd(side->xrcd), EBUSY);
	CHECK_EQ(nupa_destroy_cq(side->end->recv_cq), EBUSY);
	CHECK_EQ(nupa_destroy_srq(side->srq), 0);
	CHECK_EQ(nupa_close_xrcd(side->xrcd), 0);
	end_close(side->end);
}

static void post(struct sender *sender, enum ibv_wr_opcode opcode, uint32_t srqn, uint64_t wr_id,
		 uint32_t bytes, uint64_t raddr, uint32_t rkey)
{
	struct request request = request_of(sender->end, opcode, wr_id, 0, bytes);
	struct ibv_send_wr *bad = NULL;

	request.wr.sg_list = request.sge;
	request.wr.qp_type.xrc.remote_srqn = srqn;
	request.wr.imm_data = 77;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		request.wr.wr.atomic.remote_addr = raddr;
		request.wr.wr.atomic.rkey = rkey;
		request.wr.wr.atomic.compare_add = 5;
	} else {
		request.wr.wr.rdma.remote_addr = raddr;
		request.wr.wr.rdma.rkey = rkey;
	}
	CHECK_EQ(nupa_post_send(sender->qp, &request.wr, &bad), 0);
}

static void post_receive(struct side *side, struct ibv_srq *srq, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)side->end->memory, 200000, side->end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad = NULL;

	CHECK_EQ(nupa_post_srq_recv(srq, &wr, &bad), 0);
}

static void check_receive(struct side *side, uint64_t wr_id, const struct sender *sender,
			  uint32_t qpn, uint32_t bytes)
{
	struct ibv_wc wc = cq_expect(side->end->recv_cq, wr_id, IBV_WC_SUCCESS);

	CHECK_EQ(wc.byte_len, bytes);
	CHECK_EQ(wc.qp_num, qpn);
	CHECK_EQ(wc.src_qp, sender->qp->qp_num);
	CHECK_EQ(wc.opcode, IBV_WC_RECV);
	CHECK_EQ(wc.imm_data, 77);
	CHECK_PATTERN(side->end->memory, bytes, (uint32_t)wr_id);
}

/* --- in one process ------------------------------------------------------------------- */

static void send_all_sizes(enum nupa_mover mover)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = domain_file();
	struct side side = side_open(fabric, mover, 1, fd);
	struct sender sender = sender_open(fabric, mover, &side);
	struct ibv_srq *second = make_srq(&side, side.end->pd);

	for (uint32_t i = 0; i < 3 * N_SIZES; i++) {
		struct ibv_srq *srq = i % 3 ? side.srq : second;

		post_receive(&side, srq, i);
		pattern_fill(sender.end->memory, sizes[i % N_SIZES], i);
		post(&sender, IBV_WR_SEND_WITH_IMM, number_of(srq), i, sizes[i % N_SIZES], 0, 0);
		cq_expect(sender.end->send_cq, i, IBV_WC_SUCCESS);
		check_receive(&side, i, &sender, side.target->qp_num, sizes[i % N_SIZES]);
	}
	CHECK_EQ(nupa_destroy_srq(second), 0);
	sender_close(&sender);
	side_close(&side);
	close(fd);
	nupa_fabric_put(fabric);
}

static void messages_reach_the_srq_that_they_name(void)
{
	send_all_sizes(NUPA_MOVER_NONE);
}

static void messages_reach_the_srq_that_they_name_by_relay(void)
{
	send_all_sizes(NUPA_MOVER_RELAY);
}

static void one_sided_operations_have_the_rights_of_the_srqs_protection_domain(void)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = domain_file();
	struct side side = side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct sender sender = sender_open(fabric, NUPA_MOVER_NONE, &side);
	uint64_t there = (uintptr_t)side.end->memory, *word = (void *)side.end->memory;
	uint32_t rkey = side.end->mr->rkey;
	struct ibv_pd *other_pd = nupa_alloc_pd(side.end->context);
	struct ibv_srq *other = make_srq(&side, other_pd);
	struct ibv_wc wc;

	pattern_fill(sender.end->memory, 50000, 3);
	post(&sender, IBV_WR_RDMA_WRITE, side.srqn, 1, 50000, there, rkey);
	cq_expect(sender.end->send_cq, 1, IBV_WC_SUCCESS);
	CHECK_PATTERN(side.end->memory, 50000, 3);
	pattern_fill(side.end->memory, 50000, 4);
	post(&sender, IBV_WR_RDMA_READ, side.srqn, 2, 50000, there, rkey);
	cq_expect(sender.end->send_cq, 2, IBV_WC_SUCCESS);
	CHECK_PATTERN(sender.end->memory, 50000, 4);
	*word = 37;
	post(&sender, IBV_WR_ATOMIC_FETCH_AND_ADD, side.srqn, 3, 8, there, rkey);
	cq_expect(sender.end->send_cq, 3, IBV_WC_SUCCESS);
	CHECK_EQ(*word, 42);
	CHECK_EQ(*(uint64_t *)(void *)sender.end->memory, 37);
	post_receive(&side, side.srq, 4);
	post(&sender, IBV_WR_RDMA_WRITE_WITH_IMM, side.srqn, 4, 8, there, rkey);
	cq_expect(sender.end->send_cq, 4, IBV_WC_SUCCESS);
	wc = cq_expect(side.end->recv_cq, 4, IBV_WC_SUCCESS);
	CHECK_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	post(&sender, IBV_WR_RDMA_WRITE, number_of(other), 5, 8, there, rkey);
	cq_expect(sender.end->send_cq, 5, IBV_WC_REM_ACCESS_ERR);
	end_expect_event(side.end, IBV_EVENT_COMM_EST);
	end_expect_event(side.end, IBV_EVENT_QP_ACCESS_ERR);
	CHECK_EQ(nupa_destroy_srq(other), 0);
	CHECK_EQ(nupa_dealloc_pd(other_pd), 0);
	sender_close(&sender);
	side_close(&side);
	close(fd);
	nupa_fabric_put(fabric);
}

static void refused_with(uint32_t which)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = domain_file(), other_fd = domain_file();
	struct side side = side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct side other = side_open(fabric, NUPA_MOVER_NONE, 1, other_fd);
	struct side elsewhere = side_open(fabric, NUPA_MOVER_NONE, 0, fd);
	struct sender sender = sender_open(fabric, NUPA_MOVER_NONE, &side);
	const uint32_t numbers[] = { side.srqn + 9,  other.srqn,
				     elsewhere.srqn, 0,
				     UINT32_MAX,     200u << NUPA_QP_INDEX_BITS };

	post_receive(&side, side.srq, 1);
	post_receive(&other, other.srq, 1);
	post_receive(&elsewhere, elsewhere.srq, 1);
	post(&sender, IBV_WR_SEND, numbers[which], 1, 8, 0, 0);
	cq_expect(sender.end->send_cq, 1, IBV_WC_REM_INV_REQ_ERR);
	end_expect_event(side.end, IBV_EVENT_COMM_EST);
	end_expect_event(side.end, IBV_EVENT_QP_REQ_ERR);
	cq_expect_none(side.end->recv_cq, MS);
	cq_expect_none(other.end->recv_cq, MS);
	sender_close(&sender);
	side_close(&side);
	side_close(&other);
	side_close(&elsewhere);
	close(fd);
	close(other_fd);
	nupa_fabric_put(fabric);
}

static void srqs_that_are_not_there_or_not_in_the_domain_or_host_are_refused(void)
{
	for (uint32_t which = 0; which < 6; which++)
		refused_with(which);
}

static void without_a_receive_the_sender_tries_again(void)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = domain_file();
	struct side side = side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct sender sender = sender_open(fabric, NUPA_MOVER_NONE, &side);

	pattern_fill(sender.end->memory, 100, 1);
	post(&sender, IBV_WR_SEND_WITH_IMM, side.srqn, 1, 100, 0, 0);
	cq_expect_none(sender.end->send_cq, 5 * MS);
	post_receive(&side, side.srq, 1);
	cq_expect(sender.end->send_cq, 1, IBV_WC_SUCCESS);
	check_receive(&side, 1, &sender, side.target->qp_num, 100);
	sender_close(&sender);
	side_close(&side);
	close(fd);
	nupa_fabric_put(fabric);
}

static void each_side_does_what_it_is_for_and_no_more(void)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = domain_file();
	struct side side = side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct sender sender = sender_open(fabric, NUPA_MOVER_NONE, &side);
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
	post_receive(&side, side.srq, 1);
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
	sender_close(&sender);
	side_close(&side);
	close(fd);
	nupa_fabric_put(fabric);
}

static void completions_stay_when_the_receiving_queue_pair_goes(void)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = domain_file();
	struct side side = side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct sender sender = sender_open(fabric, NUPA_MOVER_NONE, &side);
	uint32_t qpn = side.target->qp_num;

	post_receive(&side, side.srq, 1);
	pattern_fill(sender.end->memory, 100, 1);
	post(&sender, IBV_WR_SEND_WITH_IMM, side.srqn, 1, 100, 0, 0);
	cq_expect(sender.end->send_cq, 1, IBV_WC_SUCCESS);
	CHECK_EQ(nupa_destroy_qp(side.target), 0);
	side.target = NULL;
	check_receive(&side, 1, &sender, qpn, 100);
	sender_close(&sender);
	side_close(&side);
	close(fd);
	nupa_fabric_put(fabric);
}

static void an_rc_queue_pair_is_no_partner_of_a_receiving_one(void)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = domain_file();
	struct side side = side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct end_options options = end_defaults;
	struct end_address target = side.end->self;
	struct end *rc;

	options.timeout = 8;
	options.retry_cnt = 1;
	rc = end_open(fabric, &options);
	side.target = make_target(&side);
	to_rtr(side.target, rc, rc->qp->qp_num);
	target.qpn = side.target->qp_num;
	end_connect(rc, &target);
	post_receive(&side, side.srq, 1);
	end_start(rc, IBV_WR_RDMA_WRITE, 1, 0, 8);
	cq_expect(rc->send_cq, 1, IBV_WC_RETRY_EXC_ERR);
	cq_expect_none(side.end->recv_cq, MS);
	end_close(rc);
	side_close(&side);
	close(fd);
	nupa_fabric_put(fabric);
}

/* --- SRQs of another process ----------------------------------------------------------- */

struct remote {
	pid_t pid;
	int to, from;
	uint32_t srqn;
};

/* A process that has an SRQ in the domain: a byte makes it post a receive; it answers when that is
 * posted, and when it has completed with what was meant. */
static struct remote remote_open(struct nupa_fabric *fabric, int fd)
{
	struct remote remote = { 0 };
	int to[2], from[2];
	uint32_t n = 0;

	CHECK_EQ(pipe(to), 0);
	CHECK_EQ(pipe(from), 0);
	remote.pid = fork();
	CHECK(remote.pid >= 0);
	if (!remote.pid) {
		struct side side = side_open(fabric, NUPA_MOVER_NONE, 1, fd);
		uint32_t order;

		CHECK_EQ(write(from[1], &side.srqn, sizeof(n)), sizeof(n));
		while (read(to[0], &order, sizeof(order)) == sizeof(order) && order) {
			post_receive(&side, side.srq, order);
			CHECK_EQ(write(from[1], &order, sizeof(order)), sizeof(order));
			cq_expect(side.end->recv_cq, order, IBV_WC_SUCCESS);
			n = (uint32_t)pattern_match(side.end->memory, 200, order);
			CHECK_EQ(write(from[1], &n, sizeof(n)), sizeof(n));
		}
		side_close(&side);
		exit(0);
	}
	remote.to = to[1];
	remote.from = from[0];
	close(to[0]);
	close(from[1]);
	CHECK_EQ(read(remote.from, &remote.srqn, sizeof(remote.srqn)), sizeof(remote.srqn));
	return remote;
}

static void remote_say(struct remote *remote, uint32_t word)
{
	CHECK_EQ(write(remote->to, &word, sizeof(word)), sizeof(word));
}

static void remote_hear(struct remote *remote, uint32_t word)
{
	uint32_t heard = 0;

	CHECK_EQ(read(remote->from, &heard, sizeof(heard)), sizeof(heard));
	CHECK_EQ(heard, word);
}

static void remote_close(struct remote *remote)
{
	int status;

	remote_say(remote, 0);
	CHECK_EQ(waitpid(remote->pid, &status, 0), remote->pid);
	CHECK_EQ(status, 0);
	close(remote->to);
	close(remote->from);
}

static void serve_srqs_of_several_processes(struct nupa_fabric *fabric)
{
	int fd = domain_file();
	struct remote remotes[2] = { remote_open(fabric, fd), remote_open(fabric, fd) };
	struct side side = side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct sender sender = sender_open(fabric, NUPA_MOVER_NONE, &side);

	for (uint32_t i = 1; i < 40; i++) {
		struct remote *remote = i % 3 < 2 ? &remotes[i % 3] : NULL;

		pattern_fill(sender.end->memory, 200, i);
		if (!remote) {
			post_receive(&side, side.srq, i);
			post(&sender, IBV_WR_SEND_WITH_IMM, side.srqn, i, 200, 0, 0);
			check_receive(&side, i, &sender, side.target->qp_num, 200);
		} else if (i % 2) {
			remote_say(remote, i);
			remote_hear(remote, i);
			post(&sender, IBV_WR_SEND_WITH_IMM, remote->srqn, i, 200, 0, 0);
			remote_hear(remote, 200);
		} else { /* first refused: not ready */
			post(&sender, IBV_WR_SEND_WITH_IMM, remote->srqn, i, 200, 0, 0);
			cq_expect_none(sender.end->send_cq, MS / 2);
			remote_say(remote, i);
			remote_hear(remote, i);
			remote_hear(remote, 200);
		}
		cq_expect(sender.end->send_cq, i, IBV_WC_SUCCESS);
	}
	/* Many at once: they go to one process after the other, in order. */
	remote_say(&remotes[0], 50);
	remote_hear(&remotes[0], 50);
	for (uint32_t i = 0; i < 4; i++)
		post_receive(&side, side.srq, 60 + i);
	pattern_fill(sender.end->memory, 200, 50);
	post(&sender, IBV_WR_SEND, side.srqn, 60, 200, 0, 0);
	post(&sender, IBV_WR_SEND, side.srqn, 61, 200, 0, 0);
	post(&sender, IBV_WR_SEND, remotes[0].srqn, 50, 200, 0, 0);
	post(&sender, IBV_WR_SEND, side.srqn, 62, 200, 0, 0);
	post(&sender, IBV_WR_SEND, side.srqn, 63, 200, 0, 0);
	cq_expect(sender.end->send_cq, 60, IBV_WC_SUCCESS);
	cq_expect(sender.end->send_cq, 61, IBV_WC_SUCCESS);
	cq_expect(sender.end->send_cq, 50, IBV_WC_SUCCESS);
	cq_expect(sender.end->send_cq, 62, IBV_WC_SUCCESS);
	cq_expect(sender.end->send_cq, 63, IBV_WC_SUCCESS);
	remote_hear(&remotes[0], 200);
	for (uint32_t i = 0; i < 4; i++)
		cq_expect(side.end->recv_cq, 60 + i, IBV_WC_SUCCESS);
	remote_close(&remotes[0]);
	remote_close(&remotes[1]);
	sender_close(&sender);
	side_close(&side);
	close(fd);
	nupa_fabric_put(fabric);
}

static void one_receiving_queue_pair_serves_srqs_of_several_processes(void)
{
	serve_srqs_of_several_processes(test_fabric());
}

static void it_does_so_while_messages_are_lost_doubled_and_out_of_order(void)
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

static void a_process_that_dies_with_its_srq_fails_what_waits_for_it(void)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = domain_file(), status;
	struct remote remote = remote_open(fabric, fd);
	struct side side = side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct sender sender = sender_open(fabric, NUPA_MOVER_NONE, &side);

	pattern_fill(sender.end->memory, 200, 1);
	remote_say(&remote, 1);
	remote_hear(&remote, 1);
	post(&sender, IBV_WR_SEND, remote.srqn, 1, 200, 0, 0);
	cq_expect(sender.end->send_cq, 1, IBV_WC_SUCCESS);
	remote_hear(&remote, 200);
	post(&sender, IBV_WR_SEND, remote.srqn, 2, 200, 0, 0);
	cq_expect_none(sender.end->send_cq, MS);
	CHECK_EQ(kill(remote.pid, SIGKILL), 0);
	CHECK_EQ(waitpid(remote.pid, &status, 0), remote.pid);
	cq_expect(sender.end->send_cq, 2, IBV_WC_RETRY_EXC_ERR);
	sender_close(&sender);
	side_close(&side);
	close(fd);
	nupa_fabric_put(fabric);
}

/* --- hostile senders ------------------------------------------------------------------ */

/* One message, as a process that stores what it likes into its rings would send it. */
static void attack(struct sender *attacker, uint32_t slot, const uint32_t *qpns, uint32_t srqn,
		   uint64_t *seed)
{
	struct nupa_engine *engine = nupa_engine_of(attacker->end->context);
	uint64_t random = test_random(seed);
	struct nupa_channel *channel;
	struct nupa_msg *msg = NULL;
	uint32_t index = attacker->qp->qp_num & (NUPA_QP_MAX - 1);

	nupa_engine_lock(engine);
	channel = nupa_channel_get(engine, slot);
	if (channel)
		msg = nupa_tx_reserve(&channel->tx, 0, NULL);
	if (msg) {
		for (uint32_t i = 0; i < sizeof(msg->data); i += 8) {
			uint64_t word = test_random(seed);

			memcpy(msg->data + i, &word, sizeof(word));
		}
		/* A new incarnation of its QP each time: what was refused before is forgotten. */
		engine->qp_entries[index].incarnation = random & 0xff;
		msg->op = (uint8_t)(NUPA_OP_SEND + (random >> 8) % 4);
		msg->flags = (uint8_t)(random >> 16) & (uint8_t) ~(NUPA_F_DMA | NUPA_F_ACK);
		if (random >> 60 < 12)
			msg->flags |= NUPA_F_FIRST | NUPA_F_LAST;
		msg->syndrome = random >> 56 & 7 ? NUPA_XRC_RESYNC : (uint8_t)(random >> 24);
		msg->timer = (uint8_t)(random >> 32);
		msg->dest_qpn = qpns[(random >> 40) % 3];
		msg->src_qpn = attacker->qp->qp_num;
		msg->psn = (uint32_t)(random & 0xff) << 24 | (uint32_t)(random >> 44 & 3);
		msg->ack_psn = random >> 50 & 7 ? srqn : (uint32_t)test_random(seed);
		msg->length_bytes = (uint32_t)(random >> 52 & 63);
		nupa_channel_publish(channel, msg, 0);
	}
	nupa_engine_unlock(engine);
}

/* What was refused ended the target: connected anew. */
static void revive(struct ibv_qp *target, struct end *peer, uint32_t peer_qpn)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	CHECK_EQ(nupa_query_qp(target, &attr, IBV_QP_STATE, &init), 0);
	if (attr.qp_state != IBV_QPS_ERR)
		return;
	attr.qp_state = IBV_QPS_RESET;
	CHECK_EQ(nupa_modify_qp(target, &attr, IBV_QP_STATE), 0);
	to_rtr(target, peer, peer_qpn);
}

static void xrc_messages_of_nonsense_harm_nobody(void)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = domain_file();
	/* Two movers: two attachments of this process to one host. */
	struct side owner = side_open(fabric, NUPA_MOVER_RELAY, 1, fd);
	struct side victim = side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct sender attacker = sender_open(fabric, NUPA_MOVER_NONE, &owner), honest;
	const uint32_t qpns[] = { owner.target->qp_num, victim.end->qp->qp_num,
				  owner.target->qp_num + 1 };
	uint64_t seed = test_seed();
	struct ibv_qp *attacked = owner.target;
	uint32_t received = 0;
	struct ibv_wc wc;

	for (uint32_t i = 0; i < 10; i++)
		post_receive(&victim, victim.srq, i);
	for (uint32_t i = 0; i < 20000; i++) {
		revive(attacked, attacker.end, attacker.qp->qp_num);
		attack(&attacker, (i % 3 ? victim.srqn : owner.srqn) >> NUPA_QP_INDEX_BITS, qpns,
		       i % 5 ? victim.srqn : owner.srqn, &seed);
		if (nupa_poll_cq(victim.end->recv_cq, 1, &wc) == 1) {
			post_receive(&victim, victim.srq, i);
			received++;
		}
		nupa_poll_cq(owner.end->recv_cq, 1, &wc);
	}
	CHECK(received > 0); /* some of it made sense */
	while (nupa_poll_cq(victim.end->recv_cq, 1, &wc) == 1)
		;
	/* Somebody else is served by both. */
	honest = sender_open(fabric, NUPA_MOVER_RELAY, &owner);
	post_receive(&victim, victim.srq, 1);
	pattern_fill(honest.end->memory, 300, 1);
	post(&honest, IBV_WR_SEND, victim.srqn, 1, 300, 0, 0);
	cq_expect(honest.end->send_cq, 1, IBV_WC_SUCCESS);
	cq_wait(victim.end->recv_cq);
	CHECK_EQ(nupa_destroy_qp(attacked), 0);
	sender_close(&honest);
	sender_close(&attacker);
	side_close(&victim);
	side_close(&owner);
	close(fd);
	nupa_fabric_put(fabric);
}

/* A message of that QP number, for an SRQ of another process than the target's: taken at once. */
static void knock(struct sender *attacker, struct side *victim, uint32_t qpn, uint32_t src_qpn)
{
	struct nupa_engine *engine = nupa_engine_of(attacker->end->context);
	struct nupa_channel *channel;
	struct nupa_msg *msg;
	bool taken = false;
	struct ibv_wc wc;

	nupa_engine_lock(engine);
	channel = nupa_channel_get(engine, victim->srqn >> NUPA_QP_INDEX_BITS);
	CHECK(channel);
	msg = nupa_tx_reserve(&channel->tx, 0, NULL);
	CHECK(msg);
	msg->op = NUPA_OP_SEND;
	msg->flags = NUPA_F_FIRST | NUPA_F_LAST;
	msg->syndrome = NUPA_XRC_RESYNC;
	msg->dest_qpn = qpn;
	msg->src_qpn = src_qpn;
	msg->psn = 0;
	msg->ack_psn = victim->srqn;
	msg->length_bytes = 0;
	nupa_channel_publish(channel, msg, 0);
	nupa_engine_unlock(engine);
	while (!taken) {
		nupa_poll_cq(victim->end->recv_cq, 1, &wc);
		nupa_engine_lock(engine);
		taken = nupa_tx_drained(&channel->tx);
		nupa_engine_unlock(engine);
	}
}

static void more_connections_than_the_limit_come_and_go(void)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = domain_file();
	struct side owner = side_open(fabric, NUPA_MOVER_RELAY, 1, fd);
	struct side victim = side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct sender attacker = sender_open(fabric, NUPA_MOVER_NONE, &owner);
	struct nupa_engine *engine = nupa_engine_of(owner.end->context);
	struct nupa_qp_entry *entry = &engine->qp_entries[owner.target->qp_num & (NUPA_QP_MAX - 1)];
	uint32_t slot = attacker.qp->qp_num & ~(NUPA_QP_MAX - 1);

	for (uint32_t i = 0; i <= NUPA_XRC_SHADOWS_MAX; i++) {
		/* The target says that it is connected to this one now. */
		nupa_store_relaxed(&entry->dest_qpn, slot | i);
		knock(&attacker, &victim, owner.target->qp_num, slot | i);
	}
	nupa_store_relaxed(&entry->dest_qpn, attacker.qp->qp_num);
	post_receive(&victim, victim.srq, 1);
	pattern_fill(attacker.end->memory, 300, 1);
	post(&attacker, IBV_WR_SEND_WITH_IMM, victim.srqn, 1, 300, 0, 0);
	cq_expect(attacker.end->send_cq, 1, IBV_WC_SUCCESS);
	check_receive(&victim, 1, &attacker, owner.target->qp_num, 300);
	sender_close(&attacker);
	side_close(&victim);
	side_close(&owner);
	close(fd);
	nupa_fabric_put(fabric);
}

/* --- domains and handles --------------------------------------------------------------- */

static void domains_are_opened_as_flags_and_files_say(void)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = domain_file(), remote_fd = domain_file();
	struct remote remote = remote_open(fabric, remote_fd);
	struct end_options options = end_defaults;
	struct end *end;
	struct ibv_xrcd *xrcd, *again;

	options.host = 1;
	end = end_open(fabric, &options);
	CHECK(!open_domain(end->context, -1, 0));
	CHECK_EQ(errno, EINVAL);
	CHECK(!open_domain(end->context, fd, O_APPEND));
	CHECK_EQ(errno, EINVAL);
	CHECK(!open_domain(end->context, 1000, O_CREAT));
	CHECK_EQ(errno, EBADF);
	CHECK(!open_domain(end->context, fd, 0));
	CHECK_EQ(errno, EAGAIN);
	CHECK(xrcd = open_domain(end->context, fd, O_CREAT | O_EXCL));
	CHECK(!open_domain(end->context, fd, O_CREAT | O_EXCL));
	CHECK_EQ(errno, EINVAL);
	CHECK(again = open_domain(end->context, fd, 0));
	CHECK_EQ(nupa_close_xrcd(xrcd), 0);
	CHECK_EQ(nupa_close_xrcd(again), 0);
	CHECK(!open_domain(end->context, fd, 0));
	CHECK_EQ(errno, EAGAIN);
	/* Another process of the host has this one. */
	CHECK(!open_domain(end->context, remote_fd, O_CREAT | O_EXCL));
	CHECK_EQ(errno, EINVAL);
	CHECK(xrcd = open_domain(end->context, remote_fd, 0));
	CHECK_EQ(nupa_close_xrcd(xrcd), 0);
	remote_close(&remote);
	CHECK(!open_domain(end->context, remote_fd, 0));
	CHECK_EQ(errno, EAGAIN);
	end_close(end);
	close(fd);
	close(remote_fd);
	nupa_fabric_put(fabric);
}

static void a_process_has_so_many_domains_and_no_more(void)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *end = end_open(fabric, &end_defaults);
	struct ibv_xrcd *xrcds[NUPA_XRCD_MAX];

	for (uint32_t i = 0; i < NUPA_XRCD_MAX; i++)
		CHECK(xrcds[i] = open_domain(end->context, -1, O_CREAT));
	CHECK(!open_domain(end->context, -1, O_CREAT));
	CHECK_EQ(errno, ENOMEM);
	for (uint32_t i = 0; i < NUPA_XRCD_MAX; i++)
		CHECK_EQ(nupa_close_xrcd(xrcds[i]), 0);
	end_close(end);
	nupa_fabric_put(fabric);
}

static struct ibv_qp *open_qp(struct side *side, uint32_t qpn)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = qpn,
		.xrcd = side->xrcd,
		.qp_type = IBV_QPT_XRC_RECV,
	};

	return nupa_open_qp(side->end->context, &attr);
}

static void a_receiving_queue_pair_lives_as_long_as_somebody_has_it_open(void)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = domain_file();
	struct side side = side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct sender sender = sender_open(fabric, NUPA_MOVER_NONE, &side);
	struct ibv_qp *handle = open_qp(&side, side.target->qp_num);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK(handle);
	CHECK(!open_qp(&side, sender.qp->qp_num));
	CHECK(!open_qp(&side, side.target->qp_num + 1));
	CHECK_EQ(nupa_destroy_qp(side.target), 0);
	side.target = NULL;
	CHECK_EQ(nupa_query_qp(handle, &attr, IBV_QP_STATE, &init), 0);
	CHECK_EQ(attr.qp_state, IBV_QPS_RTR);
	post_receive(&side, side.srq, 1);
	pattern_fill(sender.end->memory, 100, 1);
	post(&sender, IBV_WR_SEND_WITH_IMM, side.srqn, 1, 100, 0, 0);
	cq_expect(sender.end->send_cq, 1, IBV_WC_SUCCESS);
	check_receive(&side, 1, &sender, handle->qp_num, 100);
	attr.qp_state = IBV_QPS_ERR;
	CHECK_EQ(nupa_modify_qp(handle, &attr, IBV_QP_STATE), 0);
	post(&sender, IBV_WR_SEND, side.srqn, 2, 100, 0, 0);
	cq_expect(sender.end->send_cq, 2, IBV_WC_RETRY_EXC_ERR);
	CHECK_EQ(nupa_destroy_qp(handle), 0);
	sender_close(&sender);
	side_close(&side);
	close(fd);
	nupa_fabric_put(fabric);
}

static void a_receiving_queue_pair_of_another_process_can_be_looked_at(void)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = domain_file(), numbers[2], go[2], status;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_qp *handle;
	struct side side;
	uint32_t qpn;
	pid_t child;

	CHECK_EQ(pipe(numbers), 0);
	CHECK_EQ(pipe(go), 0);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		struct side theirs = side_open(fabric, NUPA_MOVER_NONE, 1, fd);
		struct ibv_qp *target = make_target(&theirs);

		CHECK_EQ(write(numbers[1], &target->qp_num, sizeof(qpn)), sizeof(qpn));
		CHECK_EQ(read(go[0], &qpn, 1), 1);
		_exit(0);
	}
	CHECK_EQ(read(numbers[0], &qpn, sizeof(qpn)), sizeof(qpn));
	side = side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	CHECK(handle = open_qp(&side, qpn));
	CHECK_EQ(nupa_query_qp(handle, &attr, IBV_QP_STATE, &init), 0);
	CHECK_EQ(attr.qp_state, IBV_QPS_RESET);
	CHECK_EQ(init.qp_type, IBV_QPT_XRC_RECV);
	attr.qp_state = IBV_QPS_ERR;
	CHECK_EQ(nupa_modify_qp(handle, &attr, IBV_QP_STATE), EOPNOTSUPP);
	CHECK_EQ(write(go[1], &qpn, 1), 1);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(nupa_destroy_qp(handle), 0);
	side_close(&side);
	close(fd);
	nupa_fabric_put(fabric);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(messages_reach_the_srq_that_they_name),
		CASE(messages_reach_the_srq_that_they_name_by_relay),
		CASE(one_sided_operations_have_the_rights_of_the_srqs_protection_domain),
		CASE(srqs_that_are_not_there_or_not_in_the_domain_or_host_are_refused),
		CASE(without_a_receive_the_sender_tries_again),
		CASE(each_side_does_what_it_is_for_and_no_more),
		CASE(completions_stay_when_the_receiving_queue_pair_goes),
		CASE(an_rc_queue_pair_is_no_partner_of_a_receiving_one),
		CASE(one_receiving_queue_pair_serves_srqs_of_several_processes),
		CASE(it_does_so_while_messages_are_lost_doubled_and_out_of_order),
		CASE(a_process_that_dies_with_its_srq_fails_what_waits_for_it),
		CASE(xrc_messages_of_nonsense_harm_nobody),
		CASE(more_connections_than_the_limit_come_and_go),
		CASE(domains_are_opened_as_flags_and_files_say),
		CASE(a_process_has_so_many_domains_and_no_more),
		CASE(a_receiving_queue_pair_lives_as_long_as_somebody_has_it_open),
		CASE(a_receiving_queue_pair_of_another_process_can_be_looked_at),
	};

	return test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
