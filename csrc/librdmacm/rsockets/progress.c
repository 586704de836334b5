/* SPDX-License-Identifier: BSD-3-Clause
 * Completions: arrived data, freed credits, errors.  The peer's values are checked: they may end
 * the connection, never more. */
#include "librdmacm/rsockets/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <unistd.h>

#define COMPLETIONS_AT_ONCE 16

#define KIND_SHIFT 56
#define BYTES_SHIFT 16
#define WRS_MASK UINT64_C(0xffff)
#define BYTES_MASK ((UINT64_C(1) << (KIND_SHIFT - BYTES_SHIFT)) - 1)

uint64_t rs_wr_id(enum rs_wr kind, uint64_t bytes, uint32_t wrs)
{
	return (uint64_t)kind << KIND_SHIFT | bytes << BYTES_SHIFT | wrs;
}

/* The connection ended without a message. */
void rs_break(struct rsocket *rs, int error)
{
	if (nupa_load_relaxed(&rs->broken))
		return;
	/* A peer that had ended its stream leaves nothing missing. */
	if (!nupa_load_relaxed(&rs->peer_gone) && !nupa_load_relaxed(&rs->peer_shut))
		nupa_store_relaxed(&rs->error, error);
	nupa_store_release(&rs->broken, 1);
	rs_notify(rs);
}

int rs_post_idle(struct rsocket *rs)
{
	struct rs_rx *rx = &rs->rx;
	struct ibv_recv_wr *bad;
	uint32_t n = rx->n_idle;

	for (uint32_t i = 0; i < n; i++) {
		rx->sges[i] = (struct ibv_sge){
			.addr = (uintptr_t)rx->slots + (uint64_t)rx->idle[i] * rx->slot_bytes,
			.length = rx->slot_bytes,
			.lkey = rx->slots_lkey,
		};
		rx->wrs[i] = (struct ibv_recv_wr){
			.wr_id = rs_wr_id(RS_WR_RECEIVE, 0, rx->idle[i]),
			.next = i + 1 < n ? &rx->wrs[i + 1] : NULL,
			.sg_list = &rx->sges[i],
			.num_sge = 1,
		};
	}
	rx->n_idle = 0;
	errno = n ? ibv_post_recv(rs->qp, rx->wrs, &bad) : 0;
	return errno ? -1 : 0;
}

/* A SEND of no bytes: its content is the immediate.  False: not now, or never again. */
bool rs_post_control(struct rsocket *rs, uint32_t kind, uint32_t value, enum rs_wr wr)
{
	struct ibv_send_wr request = {
		.wr_id = rs_wr_id(wr, 0, 1),
		.opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(kind << RS_WIRE_KIND_SHIFT | value),
	};
	struct ibv_send_wr *bad;

	if (nupa_load_relaxed(&rs->broken))
		return false;
	if (nupa_fetch_add_seq(&rs->control_free, -1) <= 0) {
		nupa_fetch_add_seq(&rs->control_free, 1);
		return false;
	}
	if (ibv_post_send(rs->qp, &request, &bad)) {
		rs_break(rs, ECONNRESET);
		return false;
	}
	return true;
}

static void lay_into_ring(struct rs_rx *rx, const uint8_t *from, uint32_t bytes)
{
	uint32_t at = (uint32_t)(rx->arrived % rx->bytes);
	uint32_t first = rx->bytes - at < bytes ? rx->bytes - at : bytes;

	memcpy(rx->ring + at, from, first);
	memcpy(rx->ring, from + first, bytes - first);
}

static bool arrive(struct rsocket *rs, uint32_t bytes, const uint8_t *from)
{
	struct rs_rx *rx = &rs->rx;

	if (bytes > rx->bytes - (rx->arrived - nupa_load_acquire(&rx->taken)))
		return false; /* more than it had credit for */
	if (from)
		lay_into_ring(rx, from, bytes);
	nupa_store_release(&rx->arrived, rx->arrived + bytes);
	return true;
}

static bool take_credit(struct rsocket *rs, uint32_t bytes)
{
	int64_t credit = nupa_fetch_add_seq(&rs->tx.credit, (int64_t)bytes);

	return credit + bytes <= rs->tx.ring_bytes;
}

static bool take_slots(struct rsocket *rs, uint32_t slots)
{
	int32_t had = nupa_fetch_add_seq(&rs->tx.slots, (int32_t)slots);

	return (int64_t)had + slots <= rs->tx.slots_max;
}

/* False: the peer breaks the rules. */
static bool received(struct rsocket *rs, const struct ibv_wc *wc)
{
	struct rs_rx *rx = &rs->rx;
	uint32_t slot = (uint32_t)(wc->wr_id & WRS_MASK);
	uint32_t immediate = ntohl(wc->imm_data);
	uint32_t value = immediate & RS_WIRE_VALUE_MASK;

	rx->idle[rx->n_idle++] = slot;
	if (!(wc->wc_flags & IBV_WC_WITH_IMM))
		return false;
	if (nupa_load_relaxed(&rs->state) == RS_ACCEPTED)
		nupa_store_release(&rs->state, RS_CONNECTED);
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
		rx->data_slots++;
		return value == wc->byte_len && arrive(rs, value, NULL);
	}
	switch ((enum rs_wire_kind)(immediate >> RS_WIRE_KIND_SHIFT)) {
	case RS_WIRE_SHORT:
		rx->data_slots++;
		return arrive(rs, wc->byte_len, rx->slots + (size_t)slot * rx->slot_bytes);
	case RS_WIRE_CREDIT:
		return take_credit(rs, value);
	case RS_WIRE_SLOTS:
		return take_slots(rs, value);
	case RS_WIRE_END:
		nupa_store_release(&rs->peer_shut, 1);
		return true;
	}
	return false;
}

static void sent(struct rsocket *rs, uint64_t wr_id)
{
	switch ((enum rs_wr)(wr_id >> KIND_SHIFT)) {
	case RS_WR_DATA:
		nupa_store_release(&rs->tx.tail, rs->tx.tail + (wr_id >> BYTES_SHIFT & BYTES_MASK));
		nupa_fetch_add_seq(&rs->tx.wr_free, (int32_t)(wr_id & WRS_MASK));
		return;
	case RS_WR_END:
		nupa_store_release(&rs->end_sent, 1);
		/* fall through */
	case RS_WR_CONTROL:
		nupa_fetch_add_seq(&rs->control_free, 1);
		return;
	case RS_WR_RECEIVE:
		return;
	}
}

static void handle(struct rsocket *rs, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS) {
		rs_break(rs, ECONNRESET);
		return;
	}
	if ((enum rs_wr)(wc->wr_id >> KIND_SHIFT) != RS_WR_RECEIVE)
		sent(rs, wc->wr_id);
	else if (!received(rs, wc))
		rs_break(rs, EPROTO);
}

/* Slots are posted in batches, and told to the peer in larger ones. */
static void give_back_slots(struct rsocket *rs)
{
	struct rs_rx *rx = &rs->rx;
	uint32_t data_slots = rx->n_slots - RS_CONTROL_MAX;

	if (rx->n_idle < data_slots / 4 && rx->n_idle - rx->data_slots < RS_CONTROL_MAX / 2)
		return;
	if (rs_post_idle(rs)) {
		rs_break(rs, ECONNRESET);
		return;
	}
	rx->slots_unreported += rx->data_slots;
	rx->data_slots = 0;
	if (rx->slots_unreported >= data_slots / 2 &&
	    rs_post_control(rs, RS_WIRE_SLOTS, rx->slots_unreported, RS_WR_CONTROL))
		rx->slots_unreported = 0;
}

static int drain(struct rsocket *rs)
{
	struct ibv_wc wcs[COMPLETIONS_AT_ONCE];
	int n, all = 0;

	do {
		n = ibv_poll_cq(rs->cq, COMPLETIONS_AT_ONCE, wcs);
		for (int i = 0; i < n; i++)
			handle(rs, &wcs[i]);
		all += n;
	} while (n == COMPLETIONS_AT_ONCE);
	if (all && !nupa_load_relaxed(&rs->broken))
		give_back_slots(rs);
	return all;
}

/* Takes completions. */
void rs_progress(struct rsocket *rs)
{
	int n;

	if (!nupa_load_relaxed(&rs->cq))
		return;
	pthread_mutex_lock(&rs->progress);
	n = rs->cq ? rs->datagrams ? rs->datagram_ops->drain(rs) : drain(rs) : 0;
	pthread_mutex_unlock(&rs->progress);
	if (n)
		rs_notify(rs);
}

/* The next completion makes rs->fd readable. */
void rs_arm(struct rsocket *rs)
{
	pthread_mutex_lock(&rs->progress);
	if (rs->cq && !rs->armed && ibv_req_notify_cq(rs->cq, 0) == 0)
		rs->armed = 1;
	pthread_mutex_unlock(&rs->progress);
}
