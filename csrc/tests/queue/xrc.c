/* SPDX-License-Identifier: BSD-3-Clause
 * XRC for tests: see xrc.h. */
#include "tests/queue/xrc.h"
#include "engine/device/device.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

int xrc_file(void)
{
	int fd = memfd_create("xrcd", MFD_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

struct ibv_xrcd *xrc_domain(struct ibv_context *context, int fd, int oflags)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd,
		.oflags = oflags,
	};

	return nupa_open_xrcd(context, &attr);
}

struct ibv_srq *xrc_srq(struct xrc_side *side, struct ibv_pd *pd)
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

uint32_t xrc_number_of(struct ibv_srq *srq)
{
	uint32_t number = 0;

	CHECK_EQ(nupa_get_srq_num(srq, &number), 0);
	return number;
}

struct xrc_side xrc_side_open(struct nupa_fabric *fabric, enum nupa_mover mover, int host, int fd)
{
	struct end_options options = end_options_of(mover);
	struct xrc_side side = { 0 };

	options.host = host;
	side.end = end_open(fabric, &options);
	CHECK(side.xrcd = xrc_domain(side.end->context, fd, O_CREAT));
	side.srq = xrc_srq(&side, side.end->pd);
	side.srqn = xrc_number_of(side.srq);
	return side;
}

struct ibv_qp *xrc_target(struct xrc_side *side)
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

static struct ibv_qp *initiator(struct end *end)
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

void xrc_to_rtr(struct ibv_qp *qp, struct end *peer, uint32_t peer_qpn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = XRC_ACCESS,
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

struct xrc_sender xrc_sender_open(struct nupa_fabric *fabric, enum nupa_mover mover,
				  struct xrc_side *side)
{
	struct end_options options = end_options_of(mover);
	struct xrc_sender sender = { 0 };

	sender.end = end_open(fabric, &options);
	sender.qp = initiator(sender.end);
	side->target = xrc_target(side);
	xrc_to_rtr(side->target, sender.end, sender.qp->qp_num);
	xrc_to_rtr(sender.qp, side->end, side->target->qp_num);
	to_rts(sender.qp);
	return sender;
}

void xrc_sender_close(struct xrc_sender *sender)
{
	CHECK_EQ(nupa_destroy_qp(sender->qp), 0);
	end_close(sender->end);
}

void xrc_side_close(struct xrc_side *side)
{
	if (side->target)
		CHECK_EQ(nupa_destroy_qp(side->target), 0);
	CHECK_EQ(nupa_close_xrcd(side->xrcd), EBUSY);
	CHECK_EQ(nupa_destroy_cq(side->end->recv_cq), EBUSY);
	CHECK_EQ(nupa_destroy_srq(side->srq), 0);
	CHECK_EQ(nupa_close_xrcd(side->xrcd), 0);
	end_close(side->end);
}

void xrc_post(struct xrc_sender *sender, enum ibv_wr_opcode opcode, uint32_t srqn, uint64_t wr_id,
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

void xrc_post_receive(struct xrc_side *side, struct ibv_srq *srq, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)side->end->memory, 200000, side->end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad = NULL;

	CHECK_EQ(nupa_post_srq_recv(srq, &wr, &bad), 0);
}

void xrc_check_receive(struct xrc_side *side, uint64_t wr_id, const struct xrc_sender *sender,
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

struct xrc_remote xrc_remote_open(struct nupa_fabric *fabric, int fd)
{
	struct xrc_remote remote = { 0 };
	int to[2], from[2];
	uint32_t n = 0;

	CHECK_EQ(pipe(to), 0);
	CHECK_EQ(pipe(from), 0);
	remote.pid = fork();
	CHECK(remote.pid >= 0);
	if (!remote.pid) {
		struct xrc_side side = xrc_side_open(fabric, NUPA_MOVER_NONE, 1, fd);
		uint32_t order;

		CHECK_EQ(write(from[1], &side.srqn, sizeof(n)), sizeof(n));
		while (read(to[0], &order, sizeof(order)) == sizeof(order) && order) {
			xrc_post_receive(&side, side.srq, order);
			CHECK_EQ(write(from[1], &order, sizeof(order)), sizeof(order));
			cq_expect(side.end->recv_cq, order, IBV_WC_SUCCESS);
			n = (uint32_t)pattern_match(side.end->memory, 200, order);
			CHECK_EQ(write(from[1], &n, sizeof(n)), sizeof(n));
		}
		xrc_side_close(&side);
		exit(0);
	}
	remote.to = to[1];
	remote.from = from[0];
	close(to[0]);
	close(from[1]);
	CHECK_EQ(read(remote.from, &remote.srqn, sizeof(remote.srqn)), sizeof(remote.srqn));
	return remote;
}

void xrc_remote_say(struct xrc_remote *remote, uint32_t word)
{
	CHECK_EQ(write(remote->to, &word, sizeof(word)), sizeof(word));
}

void xrc_remote_hear(struct xrc_remote *remote, uint32_t word)
{
	uint32_t heard = 0;

	CHECK_EQ(read(remote->from, &heard, sizeof(heard)), sizeof(heard));
	CHECK_EQ(heard, word);
}

void xrc_remote_close(struct xrc_remote *remote)
{
	xrc_remote_say(remote, 0);
	CHECK_CHILD(remote->pid);
	close(remote->to);
	close(remote->from);
}

struct ibv_qp *xrc_open_qp(struct xrc_side *side, uint32_t qpn)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = qpn,
		.xrcd = side->xrcd,
		.qp_type = IBV_QPT_XRC_RECV,
	};

	return nupa_open_qp(side->end->context, &attr);
}
