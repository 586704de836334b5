/* SPDX-License-Identifier: BSD-3-Clause
 * The fabric of benchmarks that call the engine's own verbs. */
#ifndef NUPA_BENCH_FABRIC_H
#define NUPA_BENCH_FABRIC_H

#include "bench.h"

#include "engine/core/nupa.h"

/* An anonymous fabric of two hosts and one switch; exits where there cannot be one. */
static inline struct nupa_fabric *bench_fabric(const char *program,
					       const struct nupa_config *config)
{
	static const struct nupa_host hosts[2] = {
		{ .name = "host0",
		  .port = 0,
		  .link_layer = NUPA_LINK_ETHERNET,
		  .ipv4 = 0x0a000001 },
		{ .name = "host1",
		  .port = 1,
		  .link_layer = NUPA_LINK_ETHERNET,
		  .ipv4 = 0x0a000002 },
	};
	static const struct nupa_port ports[2] = {
		{ "host0/1", 1, 0, 0, 1, 4, 32000, NUPA_PORT_ACTIVE, 0 },
		{ "host1/1", 0, 0, 1, 1, 4, 32000, NUPA_PORT_ACTIVE, 0 },
	};
	static const struct nupa_route routes[4] = {
		{ .hops = 0 },
		{ .hops = 2, .port = { 0, 1 } },
		{ .hops = 2, .port = { 1, 0 } },
		{ .hops = 0 },
	};
	struct nupa_fabric *fabric = NULL;
	char why[512] = "";

	if (nupa_fabric_create(NULL, "bench", config, hosts, 2, ports, 2, routes, &fabric, why,
			       sizeof(why))) {
		fprintf(stderr, "%s: %s\n", program, why);
		exit(1);
	}
	return fabric;
}

_Noreturn static inline void bench_fail(const char *program, const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", program, what, strerror(errno));
	exit(1);
}

static inline struct ibv_context *bench_open_host(const char *program, struct nupa_fabric *fabric,
						  int host)
{
	char why[512] = "";
	struct ibv_context *context =
	    nupa_open_host(fabric, host, NUPA_MOVER_NONE, why, sizeof(why));

	if (!context) {
		fprintf(stderr, "%s: %s\n", program, why);
		exit(1);
	}
	return context;
}

/* An RC QP in INIT, for WRITEs and SENDs, with *depth* requests of each kind. */
static inline struct ibv_qp *bench_make_qp(const char *program, struct ibv_pd *pd,
					   struct ibv_cq *cq, uint32_t depth)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = depth,
			 .max_recv_wr = depth,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_qp *qp = nupa_create_qp(pd, &init);

	if (!qp ||
	    nupa_modify_qp(qp, &attr,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		bench_fail(program, "ibv_create_qp");
	return qp;
}

/* From INIT to RTS, with this QP of that host. */
static inline void bench_connect_qp(const char *program, struct ibv_qp *qp, uint32_t qpn, int host)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = qpn,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 1 } },
	};
	uint8_t *raw = attr.ah_attr.grh.dgid.raw;

	raw[10] = raw[11] = 0xff; /* ::ffff:10.0.0.N */
	raw[12] = 10;
	raw[15] = (uint8_t)(1 + host);
	if (nupa_modify_qp(qp, &attr,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		bench_fail(program, "to RTR");
	attr.qp_state = IBV_QPS_RTS;
	if (nupa_modify_qp(qp, &attr,
			   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		bench_fail(program, "to RTS");
}

#endif
