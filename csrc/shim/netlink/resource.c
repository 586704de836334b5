/* SPDX-License-Identifier: BSD-3-Clause
 * Resources of all processes of the host (segment/resource), one entry each.  As in the kernel, a
 * list is messages with as many entries as fit, and one resource is a message by itself.
 *
 * Keys of MRs are shown to all that can open the fabric: they can read its memory as well. */
#define _GNU_SOURCE
#include "shim/netlink/netlink.h"

#include "abi/verbs_abi.h"
#include "segment/resource/resource.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#define BATCH 32u
#define QP_RANGES_MAX 100u /* QPs of an SRQ: more ranges than these are left out */

typedef const struct nupa_shim_view view_t;
typedef const struct nupa_netlink_request request_t;
typedef struct nupa_netlink_writer writer_t;
typedef const struct nupa_resource_info info_t;
typedef void put_entry(view_t *view, info_t *info, writer_t *to);

static void put_pid(info_t *info, writer_t *to)
{
	if (info->pid)
		nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_PID, info->pid);
}

/* A QP has one from INIT on. */
static bool has_port(info_t *info)
{
	return info->kind != NUPA_RESOURCE_QP || info->state != IBV_QPS_RESET;
}

static void put_qp(view_t *view, info_t *info, writer_t *to)
{
	(void)view;
	if (has_port(info))
		nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_PORT_INDEX, 1);
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_LQPN, info->number);
	if (info->type == IBV_QPT_RC || info->type == IBV_QPT_UC) {
		nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_RQPN, info->dest_qpn);
		nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_RQ_PSN, info->rq_psn);
	}
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_SQ_PSN, info->sq_psn);
	if (info->type != IBV_QPT_UD)
		nupa_netlink_put_u8(to, RDMA_NLDEV_ATTR_RES_PATH_MIG_STATE,
				    (uint8_t)info->path_mig_state);
	nupa_netlink_put_u8(to, RDMA_NLDEV_ATTR_RES_TYPE, (uint8_t)info->type);
	nupa_netlink_put_u8(to, RDMA_NLDEV_ATTR_RES_STATE, (uint8_t)info->state);
	if (info->pd)
		nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_PDN, info->pd);
	put_pid(info, to);
}

static void put_address(writer_t *to, uint16_t type, uint32_t family, const uint8_t address[16],
			uint32_t port)
{
	struct sockaddr_storage storage = { .ss_family = (sa_family_t)family };

	if (family == AF_INET6) {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(void *)&storage;

		memcpy(&in6->sin6_addr, address, sizeof(in6->sin6_addr));
		in6->sin6_port = htons((uint16_t)port);
	} else {
		struct sockaddr_in *in4 = (struct sockaddr_in *)(void *)&storage;

		memcpy(&in4->sin_addr, address, sizeof(in4->sin_addr));
		in4->sin_port = htons((uint16_t)port);
	}
	nupa_netlink_put(to, type, &storage, sizeof(storage));
}

static void put_cm_id(view_t *view, info_t *info, writer_t *to)
{
	static const uint8_t none[16];
	/* A listener of any address has no peer, and a resolved one has. */
	const bool has_peer = info->dst_port || memcmp(info->dst, none, sizeof(none)) != 0;

	(void)view;
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_PORT_INDEX, 1);
	if (info->qpn) {
		nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_LQPN, info->qpn);
		nupa_netlink_put_u8(to, RDMA_NLDEV_ATTR_RES_TYPE, (uint8_t)info->type);
	}
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_PS, info->ps);
	nupa_netlink_put_u8(to, RDMA_NLDEV_ATTR_RES_STATE, (uint8_t)info->cm_state);
	if (info->family == AF_INET || info->family == AF_INET6) {
		put_address(to, RDMA_NLDEV_ATTR_RES_SRC_ADDR, info->family, info->src,
			    info->src_port);
		if (has_peer)
			put_address(to, RDMA_NLDEV_ATTR_RES_DST_ADDR, info->family, info->dst,
				    info->dst_port);
	}
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_CM_IDN, info->number);
	put_pid(info, to);
}

static void put_cq(view_t *view, info_t *info, writer_t *to)
{
	(void)view;
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_CQE, info->entries);
	nupa_netlink_put_u64(to, RDMA_NLDEV_ATTR_RES_USECNT, info->users);
	nupa_netlink_put_u8(to, RDMA_NLDEV_ATTR_DEV_DIM, 0);
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_CQN, info->number);
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_CTXN, info->context);
	put_pid(info, to);
}

static void put_mr(view_t *view, info_t *info, writer_t *to)
{
	(void)view;
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_RKEY, info->key);
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_LKEY, info->key);
	nupa_netlink_put_u64(to, RDMA_NLDEV_ATTR_RES_MRLEN, info->length);
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_MRN, info->number);
	if (info->pd)
		nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_PDN, info->pd);
	put_pid(info, to);
}

static void put_mr_counters(view_t *view, info_t *info, writer_t *to)
{
	(void)view;
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_MRN, info->number);
}

static void put_pd(view_t *view, info_t *info, writer_t *to)
{
	(void)view;
	nupa_netlink_put_u64(to, RDMA_NLDEV_ATTR_RES_USECNT, info->users);
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_PDN, info->number);
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_CTXN, info->context);
	put_pid(info, to);
}

static void put_context(view_t *view, info_t *info, writer_t *to)
{
	(void)view;
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_CTXN, info->number);
	put_pid(info, to);
}

static void put_range(uint32_t first, uint32_t last, writer_t *to)
{
	const uint32_t entry = nupa_netlink_nest(to, RDMA_NLDEV_ATTR_RES_QP_ENTRY);

	if (first == last) {
		nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_LQPN, first);
	} else {
		nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_MIN_RANGE, first);
		nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_MAX_RANGE, last);
	}
	nupa_netlink_nest_end(to, entry);
}

/* The QPs of an SRQ: ranges of numbers that follow each other. */
static void put_qps(view_t *view, uint32_t srq, writer_t *to)
{
	const uint32_t nest = nupa_netlink_nest(to, RDMA_NLDEV_ATTR_RES_QP);
	struct nupa_resource_info qps[BATCH];
	uint32_t first = 0, last = 0, ranges = 0;
	uint64_t at = 0;
	int n;

	while ((n = nupa_fabric_resources(view->fabric, NUPA_RESOURCE_QP, (int32_t)view->host, &at,
					  qps, BATCH)) > 0)
		for (int i = 0; i < n; i++) {
			if (qps[i].srq != srq)
				continue;
			if (first && qps[i].number != last + 1) {
				if (ranges++ < QP_RANGES_MAX)
					put_range(first, last, to);
				first = 0;
			}
			first = first ? first : qps[i].number;
			last = qps[i].number;
		}
	if (first && ranges < QP_RANGES_MAX)
		put_range(first, last, to);
	nupa_netlink_nest_end(to, nest);
}

static void put_srq(view_t *view, info_t *info, writer_t *to)
{
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_SRQN, info->number);
	nupa_netlink_put_u8(to, RDMA_NLDEV_ATTR_RES_TYPE, (uint8_t)info->type);
	nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_PDN, info->pd);
	if (info->recv_cq)
		nupa_netlink_put_u32(to, RDMA_NLDEV_ATTR_RES_CQN, info->recv_cq);
	put_qps(view, info->number, to);
	put_pid(info, to);
}

/* The kinds that can be listed; entry_bytes: the longest that put() writes. */
static const struct kind {
	uint16_t command, kind, list, entry, id;
	uint32_t entry_bytes;
	put_entry *put;
} kinds[] = {
	{ RDMA_NLDEV_CMD_RES_QP_GET, NUPA_RESOURCE_QP, RDMA_NLDEV_ATTR_RES_QP,
	  RDMA_NLDEV_ATTR_RES_QP_ENTRY, RDMA_NLDEV_ATTR_RES_LQPN, 100, put_qp },
	{ RDMA_NLDEV_CMD_RES_CM_ID_GET, NUPA_RESOURCE_CM_ID, RDMA_NLDEV_ATTR_RES_CM_ID,
	  RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY, RDMA_NLDEV_ATTR_RES_CM_IDN, 340, put_cm_id },
	{ RDMA_NLDEV_CMD_RES_CQ_GET, NUPA_RESOURCE_CQ, RDMA_NLDEV_ATTR_RES_CQ,
	  RDMA_NLDEV_ATTR_RES_CQ_ENTRY, RDMA_NLDEV_ATTR_RES_CQN, 80, put_cq },
	{ RDMA_NLDEV_CMD_RES_MR_GET, NUPA_RESOURCE_MR, RDMA_NLDEV_ATTR_RES_MR,
	  RDMA_NLDEV_ATTR_RES_MR_ENTRY, RDMA_NLDEV_ATTR_RES_MRN, 80, put_mr },
	{ RDMA_NLDEV_CMD_RES_PD_GET, NUPA_RESOURCE_PD, RDMA_NLDEV_ATTR_RES_PD,
	  RDMA_NLDEV_ATTR_RES_PD_ENTRY, RDMA_NLDEV_ATTR_RES_PDN, 80, put_pd },
	{ RDMA_NLDEV_CMD_RES_CTX_GET, NUPA_RESOURCE_CTX, RDMA_NLDEV_ATTR_RES_CTX,
	  RDMA_NLDEV_ATTR_RES_CTX_ENTRY, RDMA_NLDEV_ATTR_RES_CTXN, 40, put_context },
	{ RDMA_NLDEV_CMD_RES_SRQ_GET, NUPA_RESOURCE_SRQ, RDMA_NLDEV_ATTR_RES_SRQ,
	  RDMA_NLDEV_ATTR_RES_SRQ_ENTRY, RDMA_NLDEV_ATTR_RES_SRQN, 60 + 20 * QP_RANGES_MAX,
	  put_srq },
	{ RDMA_NLDEV_CMD_STAT_GET, NUPA_RESOURCE_MR, RDMA_NLDEV_ATTR_RES_MR,
	  RDMA_NLDEV_ATTR_RES_MR_ENTRY, RDMA_NLDEV_ATTR_RES_MRN, 20, put_mr_counters },
};

static const struct kind *kind_of(uint32_t command)
{
	for (uint32_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kinds[i].command == command)
			return &kinds[i];
	return NULL;
}

bool nupa_netlink_lists(uint32_t command)
{
	return kind_of(command) != NULL;
}

int nupa_netlink_list(view_t *view, struct nupa_netlink_dump *dump, writer_t *to)
{
	const struct kind *kind = kind_of(dump->command);
	struct nupa_resource_info infos[BATCH];
	uint32_t list, listed = 0;
	int n = 0;

	if (!kind)
		return -EINVAL;
	nupa_netlink_begin(to, (uint16_t)RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, kind->command),
			   NLM_F_MULTI, dump->sequence, dump->port_id);
	nupa_netlink_put_device(to);
	list = nupa_netlink_nest(to, kind->list);
	for (;;) {
		const uint32_t fits = ((uint32_t)sizeof(to->data) - to->bytes) / kind->entry_bytes;

		if (!fits)
			break;
		n = nupa_fabric_resources(view->fabric, kind->kind, (int32_t)view->host, &dump->at,
					  infos, fits < BATCH ? fits : BATCH);
		if (n <= 0)
			break;
		for (int i = 0; i < n; i++) {
			uint32_t entry;

			if (dump->port && !has_port(&infos[i]))
				continue;
			entry = nupa_netlink_nest(to, kind->entry);
			kind->put(view, &infos[i], to);
			nupa_netlink_nest_end(to, entry);
			listed++;
		}
	}
	nupa_netlink_nest_end(to, list);
	nupa_netlink_end(to);
	return n < 0 ? n : listed > 0;
}

int nupa_netlink_resource(view_t *view, request_t *request, writer_t *to)
{
	const struct kind *kind = kind_of(RDMA_NL_GET_OP(request->head.nlmsg_type));
	struct nupa_resource_info info;
	int error;

	if (!kind || !request->given[kind->id])
		return -EINVAL;
	error = nupa_fabric_resource(view->fabric, kind->kind, (int32_t)view->host,
				     request->values[kind->id], &info);
	if (error)
		return error;
	nupa_netlink_put_device(to);
	kind->put(view, &info, to);
	return 0;
}

int nupa_netlink_summary(view_t *view, request_t *request, writer_t *to)
{
	static const struct {
		uint32_t kind;
		const char *name;
	} names[] = {
		{ NUPA_RESOURCE_PD, "pd" },   { NUPA_RESOURCE_CQ, "cq" },
		{ NUPA_RESOURCE_QP, "qp" },   { NUPA_RESOURCE_CM_ID, "cm_id" },
		{ NUPA_RESOURCE_MR, "mr" },   { NUPA_RESOURCE_CTX, "ctx" },
		{ NUPA_RESOURCE_SRQ, "srq" },
	};
	uint32_t counts[NUPA_RESOURCE_KINDS], nest;
	const int error = nupa_fabric_resource_counts(view->fabric, (int32_t)view->host, counts);

	(void)request;
	if (error)
		return error;
	nupa_netlink_put_device(to);
	nest = nupa_netlink_nest(to, RDMA_NLDEV_ATTR_RES_SUMMARY);
	for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const uint32_t entry = nupa_netlink_nest(to, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY);

		nupa_netlink_put_text(to, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, names[i].name);
		nupa_netlink_put_u64(to, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR,
				     counts[names[i].kind]);
		nupa_netlink_nest_end(to, entry);
	}
	nupa_netlink_nest_end(to, nest);
	return 0;
}
