/* SPDX-License-Identifier: BSD-3-Clause
 * Shared by the verbs programs of these tests: a device, a region, an RC queue pair.  A call that
 * fails ends the program with the call's name. */
#ifndef RC_H
#define RC_H

#include <infiniband/verbs.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GID_INDEX 1
#define BYTES 65536

#define MUST(call)                                                                                 \
	do {                                                                                       \
		if (!(call)) {                                                                     \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, strerror(errno));    \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	unsigned char *memory;
};

struct address {
	uint32_t qpn;
	union ibv_gid gid;
};

static inline void end_open(struct end *end)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	MUST(list && list[0]);
	MUST(end->context = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	MUST(end->pd = ibv_alloc_pd(end->context));
	MUST(!posix_memalign((void **)&end->memory, 4096, BYTES));
	memset(end->memory, 0, BYTES);
	MUST(end->mr = ibv_reg_mr(end->pd, end->memory, BYTES,
				  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				      IBV_ACCESS_REMOTE_READ));
}

static inline void end_make_qp(struct end *end)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 16,
			 .max_recv_wr = 16,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};

	MUST(end->cq = ibv_create_cq(end->context, 64, NULL, NULL, 0));
	init.send_cq = init.recv_cq = end->cq;
	MUST(end->qp = ibv_create_qp(end->pd, &init));
}

static inline struct address end_address(const struct end *end)
{
	struct address address = { .qpn = end->qp->qp_num };

	MUST(!ibv_query_gid(end->context, 1, GID_INDEX, &address.gid));
	return address;
}

static inline void end_connect(struct end *end, const struct address *peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags =
					IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

	MUST(!ibv_modify_qp(end->qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qpn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = peer->gid,
				      .sgid_index = GID_INDEX,
				      .hop_limit = 1 } },
	};
	MUST(!ibv_modify_qp(end->qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .timeout = 14,
				     .retry_cnt = 7,
				     .rnr_retry = 7,
				     .max_rd_atomic = 1 };
	MUST(!ibv_modify_qp(end->qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static inline void end_receive(struct end *end, size_t at, size_t bytes)
{
	struct ibv_sge sge = { (uintptr_t)end->memory + at, (uint32_t)bytes, end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(!ibv_post_recv(end->qp, &wr, &bad));
}

static inline void end_send(struct end *end, size_t at, size_t bytes)
{
	struct ibv_sge sge = { (uintptr_t)end->memory + at, (uint32_t)bytes, end->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 2,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	MUST(!ibv_post_send(end->qp, &wr, &bad));
}

/* The status of the next completion. */
static inline enum ibv_wc_status end_wait(struct end *end)
{
	struct ibv_wc wc;
	int n;

	do
		n = ibv_poll_cq(end->cq, 1, &wc);
	while (n == 0);
	MUST(n == 1);
	return wc.status;
}

static inline void end_close(struct end *end)
{
	MUST(!ibv_destroy_qp(end->qp));
	MUST(!ibv_destroy_cq(end->cq));
	MUST(!ibv_dereg_mr(end->mr));
	MUST(!ibv_dealloc_pd(end->pd));
	MUST(!ibv_close_device(end->context));
	free(end->memory);
}

#endif
