/* SPDX-License-Identifier: BSD-3-Clause
 * Queue entries in the public format (nupa/packet/tables/queue.py): big endian, segments behind one
 * another. */
#include "base/bytes.h"
#include "capture/expand/expand.h"

#include "abi/verbs_abi.h"

#define FORMAT 1
#define PSN_UNKNOWN UINT32_MAX

enum segment { REMOTE = 1, ATOMIC, DATAGRAM, XRC, BIND, DATA, INLINE };

/* An operation's fields besides its data. */
#define HAS(segment) (1u << (segment))
static const uint8_t segments_of[16] = {
	[IBV_WR_RDMA_WRITE] = HAS(REMOTE),
	[IBV_WR_RDMA_WRITE_WITH_IMM] = HAS(REMOTE),
	[IBV_WR_RDMA_READ] = HAS(REMOTE),
	[IBV_WR_ATOMIC_CMP_AND_SWP] = HAS(REMOTE) | HAS(ATOMIC),
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = HAS(REMOTE) | HAS(ATOMIC),
	[IBV_WR_BIND_MW] = HAS(BIND),
	[IBV_WR_FLUSH] = HAS(REMOTE),
	[IBV_WR_ATOMIC_WRITE] = HAS(REMOTE) | HAS(ATOMIC),
};

/* Immediate data lies in memory as it is sent; an rkey is a number. */
static uint8_t *put_imm(uint8_t *at, uint32_t imm, bool is_rkey)
{
	if (is_rkey)
		return nupa_put(at, imm, 4);
	memcpy(at, &imm, sizeof(imm));
	return at + sizeof(imm);
}

static uint8_t *begin(uint8_t *at, enum segment type, uint32_t bytes)
{
	return nupa_put(nupa_put(at, (uint32_t)type << 8, 2), bytes, 2);
}

static uint8_t *put_datagram(const struct nupa_watch *watch, const struct nupa_trace_wqe *wqe,
			     uint8_t *at)
{
	const uint32_t n_hosts = watch->fabric->geometry.n_hosts;

	at = begin(at, DATAGRAM, 40);
	at = nupa_put(nupa_put(at, wqe->dest_qpn, 4), wqe->qkey, 4);
	at = nupa_put(at, 0, 4);                   /* DLID, SL, path bits */
	at = nupa_put(at, 1u << 24 | 64u << 8, 4); /* global; SGID index; hop limit; class */
	at = nupa_put(at, 0, 4);                   /* flow label */
	at = nupa_put(at, 0, 8);
	at = nupa_put(at, wqe->dest_host < n_hosts ? 0xffff : 0, 4);
	return nupa_put(
	    at, wqe->dest_host < n_hosts ? watch->fabric->hosts[wqe->dest_host].ipv4 : 0, 4);
}

static uint8_t *put_segments(const struct nupa_watch *watch, const struct nupa_trace_wqe *wqe,
			     uint8_t *at)
{
	const uint32_t has = wqe->opcode < 16 ? segments_of[wqe->opcode] : 0;

	if (has & HAS(REMOTE))
		at = nupa_put(nupa_put(begin(at, REMOTE, 16), wqe->raddr, 8), wqe->rkey, 4);
	if (has & HAS(ATOMIC))
		at = nupa_put(nupa_put(begin(at, ATOMIC, 20), wqe->compare_add, 8), wqe->swap, 8);
	if (wqe->qp_type == IBV_QPT_UD)
		at = put_datagram(watch, wqe, at);
	if (wqe->qp_type == IBV_QPT_XRC_SEND)
		at = nupa_put(begin(at, XRC, 8), wqe->srqn, 4);
	if (has & HAS(BIND)) {
		at = nupa_put(nupa_put(begin(at, BIND, 32), wqe->rkey, 4), wqe->swap & UINT32_MAX,
			      4);
		at = nupa_put(nupa_put(nupa_put(at, wqe->swap >> 32, 4), wqe->raddr, 8),
			      wqe->compare_add, 8);
	}
	return at;
}

static uint8_t *put_data(const struct nupa_trace_wqe *wqe, uint32_t data_bytes, uint8_t *at)
{
	const uint8_t *data = (const uint8_t *)(wqe + 1);

	if (wqe->flags & IBV_SEND_INLINE) {
		at = begin(at, INLINE, 4 + data_bytes);
		memcpy(at, data, data_bytes);
		return at + data_bytes;
	}
	for (uint32_t i = 0; i < wqe->n_sge; i++) {
		struct ibv_sge sge;

		memcpy(&sge, data + i * sizeof(sge), sizeof(sge));
		at = nupa_put(begin(at, DATA, 20), sge.addr, 8);
		at = nupa_put(nupa_put(at, sge.length, 4), sge.lkey, 4);
	}
	return at;
}

static struct nupa_run *add_entry(struct nupa_watch *watch, uint8_t kind, uint64_t transfer,
				  uint32_t host, enum nupa_direction direction, uint8_t *end)
{
	struct nupa_run *run = nupa_run_add(watch, NUPA_LEVEL_QUEUE, kind, transfer, 0);

	run->how = NUPA_RUN_ENTRY;
	run->whole.data = watch->entry;
	run->whole.data_bytes = run->whole.original_bytes = (uint32_t)(end - watch->entry);
	nupa_sights_device(watch, host, direction, &run->cast);
	return run;
}

/* W1 */
static bool wqe_makes_sense(const struct nupa_trace_wqe *wqe, uint32_t data_bytes)
{
	if (wqe->flags & IBV_SEND_INLINE)
		return data_bytes <= NUPA_INLINE_MAX_BYTES;
	return wqe->n_sge <= NUPA_SGE_MAX && data_bytes >= wqe->n_sge * sizeof(struct ibv_sge);
}

bool nupa_expand_wqe(struct nupa_watch *watch, const struct nupa_trace_record *record,
		     uint32_t source)
{
	const struct nupa_trace_wqe *wqe = (const void *)(record + 1);
	uint8_t *at = watch->entry;

	if (!wqe_makes_sense(wqe, record->data_bytes))
		return false;
	nupa_tlp_remember(watch, record->transfer, wqe);
	*at++ = FORMAT;
	*at++ = 0; /* of the send queue */
	*at++ = wqe->opcode;
	*at++ = wqe->qp_type;
	at = nupa_put(at, wqe->flags, 2);
	at = nupa_put(at, 0, 2); /* length: below */
	at = nupa_put(at, wqe->qpn, 4);
	at = put_imm(at, wqe->imm, wqe->opcode == IBV_WR_SEND_WITH_INV);
	at = nupa_put(nupa_put(at, wqe->index, 8), wqe->wr_id, 8);
	at = nupa_put(nupa_put(at, wqe->length_bytes, 4), PSN_UNKNOWN, 4);
	at = put_data(wqe, record->data_bytes, put_segments(watch, wqe, at));
	nupa_put(watch->entry + 6, (uint32_t)(at - watch->entry), 2);
	add_entry(watch, NUPA_KIND_WQE, record->transfer, nupa_host_of(watch, source),
		  NUPA_OUTBOUND, at);
	return true;
}

bool nupa_expand_doorbell(struct nupa_watch *watch, const struct nupa_trace_record *record,
			  uint32_t source)
{
	const struct nupa_trace_doorbell *bell = (const void *)(record + 1);
	const uint32_t host = nupa_host_of(watch, source);
	uint8_t *at = watch->entry;

	if (bell->queue > NUPA_QUEUE_CQ)
		return false;
	*at++ = FORMAT;
	*at++ = (uint8_t)bell->queue;
	at = nupa_put(at, bell->flags & 1, 2);
	at = nupa_put(nupa_put(at, bell->number, 4), bell->index, 8);
	add_entry(watch, NUPA_KIND_DOORBELL, record->transfer, host, NUPA_OUTBOUND, at);
	/* Receives are posted in the host's own memory: nothing crosses the link. */
	if (bell->queue == NUPA_QUEUE_SQ || bell->queue == NUPA_QUEUE_CQ)
		nupa_tlp_doorbell(watch, record, host, bell);
	return true;
}

/* The work request that completes: for a receive it is the sender's. */
static uint64_t transfer_of(struct nupa_watch *watch, const struct nupa_trace_record *record,
			    const struct nupa_trace_cqe *cqe)
{
	struct nupa_sent guess;

	if (record->transfer || cqe->psn == PSN_UNKNOWN)
		return record->transfer;
	return nupa_requester_find(watch, cqe->src_qpn, cqe->psn, &guess)->transfer;
}

bool nupa_expand_cqe(struct nupa_watch *watch, const struct nupa_trace_record *record,
		     uint32_t source)
{
	const struct nupa_trace_cqe *cqe = (const void *)(record + 1);
	const uint64_t transfer = transfer_of(watch, record, cqe);
	const uint32_t host = nupa_host_of(watch, source);
	struct nupa_run *run;
	uint8_t *at = watch->entry;

	*at++ = FORMAT;
	*at++ = cqe->status;
	*at++ = cqe->opcode;
	*at++ = cqe->wc_flags;
	at = nupa_put(nupa_put(nupa_put(at, cqe->cq, 4), cqe->qpn, 4), cqe->src_qpn, 4);
	at = nupa_put(nupa_put(nupa_put(at, cqe->wr_id, 8), cqe->index, 8), cqe->byte_len, 4);
	at = put_imm(at, cqe->imm, cqe->wc_flags & IBV_WC_WITH_INV);
	at = nupa_put(nupa_put(at, 0, 8), cqe->vendor_err, 4); /* LIDs and the like: none */
	at = nupa_put(at, 0, 4);
	at = nupa_put(at, watch->ts_ns, 8);
	run = add_entry(watch, NUPA_KIND_CQE, transfer, host, NUPA_INBOUND, at);
	run->cast.ends_transfer = !cqe->is_receive;
	nupa_tlp_cqe(watch, record, transfer, host, cqe);
	return true;
}
