// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Receives of processes, which are posted without a call: the engine takes the next one when it
 * has none.
 */
#include "kernel/rdma/user/user.h"

#include <linux/ip.h>
#include <linux/udp.h>
#include <net/dsfield.h>
#include <net/ip.h>
#include <net/ipv6.h>

static_assert(sizeof(struct rxe_sge) == sizeof(struct ibv_sge));
static_assert(offsetof(struct rxe_sge, lkey) == offsetof(struct ibv_sge, lkey));

/* Below the limit: once, with the engine's lock. */
static void look_at_limit(struct user_rq *rq)
{
	struct ibv_async_event event = { .event_type = IBV_EVENT_SRQ_LIMIT_REACHED };
	struct ibv_srq *own;

	if (!rq->limit || user_queue_waiting(rq->queue) >= rq->limit)
		return;
	rq->limit = 0;
	own = srq_of(rq->srq)->own;
	event.element.srq = own;
	nupa_event_raise(container_of(own->context, struct nupa_context, ibv.context), &event);
}

/* Once more receives come than there were when the QP went into error, the flush ends. */
static bool flush_is_over(struct user_rq *rq, const struct nupa_qp *qp)
{
	if (qp->state != IBV_QPS_ERR)
		return rq->flushes = false;
	if (!rq->flushes)
		rq->left = user_queue_waiting(rq->queue);
	rq->flushes = true;
	return !rq->left || !rq->left--;
}

static bool take(struct nupa_rq_source *source, struct nupa_rq *to)
{
	struct user_rq *rq = container_of(source, struct user_rq, source);
	const struct rxe_recv_wqe *from = user_queue_next(rq->queue);
	struct ibv_sge sge[NUPA_SGE_MAX];
	struct ibv_recv_wr wr = { .sg_list = sge };

	if (!from || (!rq->srq && flush_is_over(rq, container_of(to, struct nupa_qp, rq))))
		return false;
	wr.wr_id = READ_ONCE(from->wr_id);
	wr.num_sge = READ_ONCE(from->dma.num_sge);
	if (likely((uint32_t)wr.num_sge <= rq->max_sge)) {
		memcpy(sge, from->dma.sge, wr.num_sge * sizeof(*sge));
	} else { /* no provider posts it: it fails where it is used */
		sge[0] = (struct ibv_sge){ .length = U32_MAX };
		wr.num_sge = 1;
	}
	user_queue_taken(rq->queue);
	user_queue_release(rq->queue, rq->queue->index);
	if (rq->srq)
		look_at_limit(rq);
	return !nupa_rq_post(to, &wr);
}

/* BTH, DETH and ICRC. */
#define IBA_BYTES (12 + 8 + 4)

/* The engine writes IBA's GRH.  rdma-core makes address handles of the header of a RoCE v2 packet:
 * that of IPv4 in the last 20 bytes, or that of IPv6. */
static void translate_grh(uint8_t grh[NUPA_GRH_BYTES])
{
	struct ipv6hdr ipv6;
	struct iphdr ipv4;

	static_assert(sizeof(ipv6) == NUPA_GRH_BYTES);
	memcpy(&ipv6, grh, sizeof(ipv6));
	if (ipv6.version != 6) /* without a GRH */
		return;
	if (!ipv6_addr_v4mapped(&ipv6.daddr)) {
		ipv6.nexthdr = IPPROTO_UDP;
		memcpy(grh, &ipv6, sizeof(ipv6));
		return;
	}
	ipv4 = (struct iphdr){
		.version = 4,
		.ihl = sizeof(ipv4) / 4,
		.tos = ipv6_get_dsfield(&ipv6),
		.tot_len = htons(sizeof(ipv4) + sizeof(struct udphdr) + IBA_BYTES +
				 ntohs(ipv6.payload_len)),
		.frag_off = htons(IP_DF),
		.ttl = ipv6.hop_limit,
		.protocol = IPPROTO_UDP,
		.saddr = ipv6.saddr.s6_addr32[3],
		.daddr = ipv6.daddr.s6_addr32[3],
	};
	ipv4.check = ip_fast_csum(&ipv4, ipv4.ihl);
	memset(grh, 0, NUPA_GRH_BYTES - sizeof(ipv4));
	memcpy(grh + NUPA_GRH_BYTES - sizeof(ipv4), &ipv4, sizeof(ipv4));
}

void user_rq_init(struct user_rq *rq, struct user_queue *queue, uint32_t max_wr, uint32_t max_sge,
		  struct ib_srq *srq)
{
	*rq = (struct user_rq){
		.source = { .take = take, .translate = translate_grh },
		.queue = queue,
		.srq = srq,
		.max_wr = max_wr,
		.max_sge = max_sge,
	};
}
