/* SPDX-License-Identifier: BSD-3-Clause
 * unsupported STATUS N: N calls for what the device lacks, twice; then the process exits with
 * STATUS. 0 calls: a work request that its queue pair does not take. */
#include "rc.h"

static struct end end;

static void *call(int number)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RAW_PACKET,
					 .send_cq = end.cq,
					 .recv_cq = end.cq };
	struct ibv_flow_attr flow = { .port = 1 };
	struct ibv_counters_init_attr counters = { 0 };
	struct ibv_srq_init_attr_ex srq = { .comp_mask = IBV_SRQ_INIT_ATTR_TYPE,
					    .srq_type = IBV_SRQT_TM };
	struct ibv_wq_init_attr wq = { .wq_type = IBV_WQT_RQ };

	switch (number) {
	case 0:
		return ibv_create_qp(end.pd, &init);
	case 1:
		return ibv_create_flow(end.qp, &flow);
	case 2:
		return ibv_create_counters(end.context, &counters);
	case 3:
		return ibv_create_srq_ex(end.context, &srq);
	default:
		return ibv_create_wq(end.context, &wq);
	}
}

static void post(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_TSO }, *bad = NULL;

	MUST(ibv_post_send(end.qp, &wr, &bad) == EINVAL && bad == &wr);
}

int main(int argc, char **argv)
{
	struct address own;

	MUST(argc == 3);
	end_open(&end);
	end_make_qp(&end);
	own = end_address(&end);
	end_connect(&end, &own);
	for (int i = 0; i < 2; i++) {
		if (!atoi(argv[2]))
			post();
		for (int number = 0; number < atoi(argv[2]); number++)
			MUST(!call(number) && errno == EOPNOTSUPP);
	}
	return atoi(argv[1]);
}
