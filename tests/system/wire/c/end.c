/* SPDX-License-Identifier: BSD-3-Clause */
#include "end.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#define PSN 0xfffff0u /* it wraps soon */

/* --- bytes --------------------------------------------------------------------------------- */

static unsigned char byte_of(uint32_t seed, uint32_t i)
{
	return (unsigned char)((i + seed * 40503u) * 2654435761u >> 24);
}

void end_fill(unsigned char *at, const struct step *step)
{
	for (uint32_t i = 0; i < step->length; i++)
		at[i] = byte_of(step->seed, i);
}

void end_check(const struct end *end, const struct step *step)
{
	const unsigned char *at = in(end);

	for (uint32_t i = 0; i < step->length; i++)
		if (at[i] != byte_of(step->seed, i)) {
			fprintf(stderr, "kind %u, %u bytes: byte %u is wrong\n", step->kind,
				step->length, i);
			exit(1);
		}
	for (uint32_t i = 0; i < GUARD; i++)
		MUST(!at[-1 - (int)i] && !at[step->length + i]);
}

void end_say(const struct end *end, const void *bytes, size_t n)
{
	MUST(send(end->tcp, bytes, n, MSG_NOSIGNAL) == (ssize_t)n);
}

void end_hear(const struct end *end, void *bytes, size_t n)
{
	MUST(recv(end->tcp, bytes, n, MSG_WAITALL) == (ssize_t)n);
}

struct ibv_wc end_completion(const struct end *end, enum ibv_wc_status status)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(end->cq, 1, &wc)))
		;
	MUST(n == 1);
	if (wc.status != status) {
		fprintf(stderr, "%s, not %s\n", ibv_wc_status_str(wc.status),
			ibv_wc_status_str(status));
		exit(1);
	}
	return wc;
}

/* --- the QP -------------------------------------------------------------------------------- */

static void open_device(struct end *end, const char *name)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = {
		.qp_type = end->type,
		.cap = { 2 * DEPTH, 2 * DEPTH, 2, 2, 0 },
	};

	MUST(list);
	for (int i = 0; list[i] && !end->context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			MUST(end->context = ibv_open_device(list[i]));
	MUST(end->context);
	ibv_free_device_list(list);
	MUST(end->pd = ibv_alloc_pd(end->context));
	MUST(end->memory = aligned_alloc(4096, (BYTES + 4095) / 4096 * 4096));
	memset(end->memory, 0, BYTES);
	MUST(end->mr = ibv_reg_mr(end->pd, end->memory, BYTES, access));
	MUST(end->cq = ibv_create_cq(end->context, 4 * DEPTH, NULL, NULL, 0));
	init.send_cq = init.recv_cq = end->cq;
	MUST(end->qp = ibv_create_qp(end->pd, &init));
}

static void to_init(struct end *end)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	if (end->type != IBV_QPT_UD)
		attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (end->type == IBV_QPT_RC)
		attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	mask |= end->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	MUST(!ibv_modify_qp(end->qp, &attr, mask));
}

static void to_rtr(struct end *end, struct ibv_ah_attr *ah)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .rq_psn = PSN, .max_dest_rd_atomic = 4, .min_rnr_timer = 12
	};
	int mask = IBV_QP_STATE;

	for (attr.path_mtu = IBV_MTU_256; 128 << attr.path_mtu < end->mtu; attr.path_mtu++)
		;
	attr.dest_qp_num = end->peer.qpn;
	attr.ah_attr = *ah;
	if (end->type == IBV_QPT_UD)
		MUST(end->ah = ibv_create_ah(end->pd, ah));
	else
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (end->type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	MUST(!ibv_modify_qp(end->qp, &attr, mask));
}

static void to_rts(struct end *end)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS,
				    .sq_psn = PSN,
				    .max_rd_atomic = 4,
				    .timeout = 17,
				    .retry_cnt = 7,
				    .rnr_retry = 7 };
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (end->type == IBV_QPT_RC)
		mask |=
		    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	MUST(!ibv_modify_qp(end->qp, &attr, mask));
}

static void connect_qp(struct end *end)
{
	struct address own = { .at = (uintptr_t)in(end),
			       .qpn = end->qp->qp_num,
			       .rkey = end->mr->rkey };
	struct ibv_ah_attr ah = {
		.grh = { .sgid_index = (uint8_t)end->gid_index, .hop_limit = 64 },
		.is_global = 1,
		.port_num = 1,
	};

	MUST(!ibv_query_gid(end->context, 1, end->gid_index, &own.gid));
	end_say(end, &own, sizeof(own));
	end_hear(end, &end->peer, sizeof(end->peer));
	ah.grh.dgid = end->peer.gid;
	to_init(end);
	to_rtr(end, &ah);
	to_rts(end);
}

/* --- both ---------------------------------------------------------------------------------- */

static int meet(const char *host, const char *port)
{
	const struct addrinfo hints = { .ai_flags = AI_PASSIVE,
					.ai_family = AF_INET,
					.ai_socktype = SOCK_STREAM };
	struct addrinfo *at;
	int tcp, listener;

	MUST(!getaddrinfo(host, port, &hints, &at));
	tcp = listener = socket(at->ai_family, at->ai_socktype, 0);
	MUST(tcp >= 0);
	if (host) {
		MUST(!connect(tcp, at->ai_addr, at->ai_addrlen));
	} else {
		MUST(!bind(listener, at->ai_addr, at->ai_addrlen));
		MUST(!listen(listener, 1));
		MUST((tcp = accept(listener, NULL, NULL)) >= 0);
		close(listener);
	}
	freeaddrinfo(at);
	return tcp;
}

static enum ibv_qp_type type_of(const char *name)
{
	if (!strcmp(name, "UC"))
		return IBV_QPT_UC;
	if (!strcmp(name, "UD"))
		return IBV_QPT_UD;
	MUST(!strcmp(name, "RC"));
	return IBV_QPT_RC;
}

void end_open(struct end *end, int argc, char **argv)
{
	const char *device = "", *port = "";
	int option;

	*end = (struct end){ .mtu = 1024, .longest = LENGTH_MAX, .type = IBV_QPT_RC };
	while ((option = getopt(argc, argv, "d:g:l:m:p:t:")) > 0) {
		MUST(option != '?');
		if (option == 'd')
			device = optarg;
		else if (option == 'g')
			end->gid_index = atoi(optarg);
		else if (option == 'l')
			end->longest = (uint32_t)atoi(optarg);
		else if (option == 'm')
			end->mtu = atoi(optarg);
		else if (option == 't')
			end->type = type_of(optarg);
		else
			port = optarg;
	}
	MUST(end->longest <= LENGTH_MAX);
	end->serves = !argv[optind];
	open_device(end, device);
	end->tcp = meet(argv[optind], port);
	connect_qp(end);
}
