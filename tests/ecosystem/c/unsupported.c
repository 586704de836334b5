/* SPDX-License-Identifier: BSD-3-Clause
 * unsupported STATUS: calls for what the device lacks, twice; then the process exits with STATUS.
 * `post` in place of it: a work request that its queue pair does not take. */
#include "rc.h"

static struct end end;

static void call_what_is_lacking(void)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RAW_PACKET,
					 .send_cq = end.cq,
					 .recv_cq = end.cq };
	struct ibv_flow_attr flow = { .port = 1 };
	struct ibv_counters_init_attr counters = { 0 };

	MUST(!ibv_create_qp(end.pd, &init) && errno == EOPNOTSUPP);
	MUST(!ibv_create_flow(end.qp, &flow) && errno == EOPNOTSUPP);
	MUST(!ibv_create_counters(end.context, &counters) && errno == EOPNOTSUPP);
}

static void post(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_TSO }, *bad = NULL;

	MUST(ibv_post_send(end.qp, &wr, &bad) == EINVAL && bad == &wr);
}

int main(int argc, char **argv)
{
	struct address own;

	MUST(argc == 2);
	end_open(&end);
	end_make_qp(&end);
	own = end_address(&end);
	end_connect(&end, &own);
	for (int i = 0; i < 2; i++) {
		if (!strcmp(argv[1], "post"))
			post();
		else
			call_what_is_lacking();
	}
	return atoi(argv[1]);
}
