/* SPDX-License-Identifier: BSD-3-Clause
 * Direct accesses as packets of InfiniBand's transport: the request that an adapter would send, and
 * the response from the other side. */
#include "capture/expand/expand.h"

#include "abi/verbs_abi.h"

/* The request and its response, from one record of a part of them. */
struct direct {
	const struct nupa_trace_record *record;
	const struct nupa_trace_direct *body;
	uint32_t from, n, psn, msn;
	uint8_t transport;
	bool begins, ends;
};

static struct nupa_run *add_direct_run(struct nupa_watch *watch, const struct direct *d,
				       enum nupa_roce_what what, bool answers)
{
	const struct nupa_trace_direct *body = d->body;
	struct nupa_run *run =
	    nupa_roce_add(watch, what, d->record->transfer, nupa_flags_of(d->record));
	struct nupa_roce *roce = &run->roce;

	roce->transport = d->transport;
	roce->begins = d->begins;
	roce->ends = d->ends;
	roce->psn = d->psn;
	roce->pkey = answers ? body->peer_pkey : body->pkey;
	roce->src_qpn = answers ? body->dest_qpn : body->src_qpn;
	roce->dest_qpn = answers ? body->src_qpn : body->dest_qpn;
	roce->asks = !answers && d->transport != NUPA_TRANSPORT_UC;
	roce->syndrome = NUPA_ACK_SYNDROME;
	roce->msn = d->msn;
	roce->raddr = body->raddr;
	roce->rkey = body->rkey;
	roce->total_bytes = (uint32_t)body->message_bytes;
	run->cast.ends_transfer = d->ends && (answers || d->transport == NUPA_TRANSPORT_UC);
	nupa_roce_join(watch, run, answers ? body->dest_host : d->from,
		       answers ? d->from : body->dest_host, false);
	return run;
}

static void add_direct_data(struct nupa_watch *watch, const struct direct *d,
			    enum nupa_roce_what what, bool answers)
{
	struct nupa_run *run = add_direct_run(watch, d, what, answers);

	run->n = d->n;
	run->roce.with_imm = d->body->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	run->roce.imm = d->body->imm;
	nupa_roce_set_data(&run->roce, &d->body->data, d->record, d->body + 1);
}

static void add_direct_atomic(struct nupa_watch *watch, const struct direct *d)
{
	const struct nupa_trace_direct *body = d->body;
	const bool writes = body->opcode == IBV_WR_ATOMIC_WRITE;
	struct nupa_run *run = add_direct_run(watch, d, NUPA_ROCE_ATOMIC, false);

	run->roce.compare_add = body->compare_add;
	run->roce.swap = body->swap;
	if (writes) {
		run->roce.atomic = NUPA_ATOMIC_WRITE;
		nupa_roce_set_data(&run->roce, &body->data, d->record, body + 1);
	} else {
		run->roce.atomic =
		    body->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? NUPA_ATOMIC_CAS : NUPA_ATOMIC_ADD;
	}
	run =
	    add_direct_run(watch, d, writes ? NUPA_ROCE_READ_RESPONSE : NUPA_ROCE_ATOMIC_ACK, true);
	run->roce.original = body->original;
}

static void add_direct(struct nupa_watch *watch, const struct direct *d)
{
	struct nupa_run *run;

	switch (d->body->opcode) {
	case IBV_WR_RDMA_READ:
		if (d->begins) {
			run = add_direct_run(watch, d, NUPA_ROCE_READ, false);
			run->roce.ends = true;
		}
		add_direct_data(watch, d, NUPA_ROCE_READ_RESPONSE, true);
		return;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		add_direct_data(watch, d, NUPA_ROCE_WRITE, false);
		/* With immediate data, a message acknowledges it. */
		if (!d->ends || d->transport == NUPA_TRANSPORT_UC ||
		    d->body->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
			return;
		run = add_direct_run(watch, d, NUPA_ROCE_ACK, true);
		run->roce.psn += d->n - 1;
		return;
	default:
		add_direct_atomic(watch, d);
		return;
	}
}

static bool direct_makes_sense(const struct nupa_watch *watch, const struct direct *d)
{
	const struct nupa_trace_direct *body = d->body;
	const uint32_t n_hosts = watch->fabric->geometry.n_hosts;

	switch (body->opcode) {
	case IBV_WR_ATOMIC_WRITE:
		if (body->data.total_bytes != 8)
			return false;
		break;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		if (body->message_bytes > NUPA_MSG_MAX_BYTES ||
		    body->offset_bytes > body->message_bytes ||
		    body->data.total_bytes > body->message_bytes - body->offset_bytes)
			return false;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		if (body->data.total_bytes)
			return false;
		break;
	default:
		return false;
	}
	return d->from < n_hosts && body->dest_host < n_hosts && nupa_data_makes_sense(&body->data);
}

bool nupa_expand_direct(struct nupa_watch *watch, const struct nupa_trace_record *record,
			uint32_t source)
{
	const struct nupa_trace_direct *body = (const void *)(record + 1);
	struct direct d = {
		.record = record,
		.body = body,
		.from = nupa_host_of(watch, source),
		.transport = nupa_transport_of(body->qp_type, body->is_xrc),
	};
	bool whole;

	if (!direct_makes_sense(watch, &d))
		return false;
	whole = body->opcode > IBV_WR_RDMA_READ; /* atomics */
	d.begins = whole || !body->offset_bytes;
	d.ends = whole || body->offset_bytes + body->data.total_bytes == body->message_bytes;
	d.n = (uint32_t)nupa_packets_of(body->data.total_bytes, body->data.mtu_bytes);
	if (body->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && d.ends) {
		/* The message with this PSN, which is not recorded, covers all of it. */
		struct nupa_sent *sent = nupa_requester_sends(watch, body->src_qpn, body->psn, d.n,
							      true, record->transfer);

		sent->transport = d.transport;
		d.psn = sent->wire_psn;
	} else {
		d.psn = nupa_requester_moves(watch, body->src_qpn, body->psn, d.n, d.ends, &d.msn);
	}
	add_direct(watch, &d);
	nupa_tlp_direct(watch, record, d.from);
	return true;
}
