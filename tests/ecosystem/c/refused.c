/* SPDX-License-Identifier: BSD-3-Clause
 * refused CAUSE: two queue pairs of one process, and a request that is refused for that cause,
 * twice.  Prints the statuses of their completions. */
#include "rc.h"

static struct end here, there;

static struct ibv_mr *region(struct ibv_pd *pd, int access)
{
	struct ibv_mr *mr;

	MUST(mr = ibv_reg_mr(pd, there.memory, BYTES, access));
	return mr;
}

static uint32_t stale_key(struct ibv_pd *pd)
{
	struct ibv_mr *mr = region(pd, IBV_ACCESS_LOCAL_WRITE);
	uint32_t key = mr->rkey;

	MUST(!ibv_dereg_mr(mr));
	return key;
}

/* The changes that a cause makes to a WRITE of 64 bytes that would succeed. */
static struct ibv_send_wr *wanted(const char *cause, struct ibv_send_wr *wr)
{
	struct ibv_sge *sge = wr->sg_list;

	if (!strcmp(cause, "rkey")) {
		wr->wr.rdma.rkey = stale_key(there.pd);
	} else if (!strcmp(cause, "rkey-pd")) {
		wr->wr.rdma.rkey =
		    region(here.pd, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)->rkey;
	} else if (!strcmp(cause, "rkey-access")) {
		wr->wr.rdma.rkey = region(there.pd, IBV_ACCESS_LOCAL_WRITE)->rkey;
	} else if (!strcmp(cause, "rkey-bounds")) {
		wr->wr.rdma.remote_addr += BYTES - 24;
	} else if (!strcmp(cause, "rkey-before")) {
		wr->wr.rdma.remote_addr -= 8;
	} else if (!strcmp(cause, "qp-access")) {
		struct ibv_qp_attr attr = { .qp_access_flags = IBV_ACCESS_REMOTE_READ };

		MUST(!ibv_modify_qp(there.qp, &attr, IBV_QP_ACCESS_FLAGS));
	} else if (!strcmp(cause, "lkey")) {
		sge->lkey = stale_key(here.pd);
	} else if (!strcmp(cause, "lkey-pd")) {
		sge->lkey = there.mr->lkey;
	} else if (!strcmp(cause, "lkey-access")) {
		wr->opcode = IBV_WR_RDMA_READ;
		MUST(sge->lkey = ibv_reg_mr(here.pd, here.memory, BYTES, 0)->lkey);
	} else if (!strcmp(cause, "lkey-bounds")) {
		sge->addr += BYTES - 63;
	} else if (!strcmp(cause, "atomic")) {
		wr->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr->wr.atomic.remote_addr = (uintptr_t)there.memory + 4;
		wr->wr.atomic.rkey = there.mr->rkey;
		sge->length = 8;
	} else if (!strcmp(cause, "short") || !strcmp(cause, "short-parts")) {
		sge->length = cause[5] ? BYTES : 64;
		wr->opcode = IBV_WR_SEND;
		end_receive(&there, 0, sge->length - 1);
	} else if (!strcmp(cause, "no-receive")) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .rnr_retry = 1 };

		MUST(!ibv_modify_qp(here.qp, &attr, IBV_QP_STATE));
		MUST(!ibv_modify_qp(here.qp, &attr, IBV_QP_STATE | IBV_QP_RNR_RETRY));
		attr.qp_state = IBV_QPS_RTS;
		MUST(!ibv_modify_qp(here.qp, &attr, IBV_QP_STATE));
		wr->opcode = IBV_WR_SEND;
	} else if (strcmp(cause, "none") != 0) {
		MUST(!"a cause that is known");
	}
	return wr;
}

static void connect_both(void)
{
	struct address of_here, of_there;

	end_make_qp(&here);
	end_make_qp(&there);
	of_here = end_address(&here);
	of_there = end_address(&there);
	end_connect(&here, &of_there);
	end_connect(&there, &of_here);
}

int main(int argc, char **argv)
{
	MUST(argc == 2);
	end_open(&here);
	end_open(&there);
	for (int i = 0; i < 2; i++) {
		struct ibv_sge sge = { (uintptr_t)here.memory, 64, here.mr->lkey };
		struct ibv_send_wr wr = { .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = IBV_WR_RDMA_WRITE,
					  .send_flags = IBV_SEND_SIGNALED },
				   *bad;

		connect_both();
		wr.wr.rdma.remote_addr = (uintptr_t)there.memory;
		wr.wr.rdma.rkey = there.mr->rkey;
		MUST(!ibv_post_send(here.qp, wanted(argv[1], &wr), &bad));
		puts(ibv_wc_status_str(end_wait(&here)));
		MUST(!ibv_destroy_qp(here.qp));
		MUST(!ibv_destroy_qp(there.qp));
	}
	return 0;
}
