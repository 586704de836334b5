/* SPDX-License-Identifier: BSD-3-Clause
 * How much a QP of RC has on a wire at once.  A socket at the other end has room for some hundred
 * packets, and what finds none is lost; so the window grows with what is acknowledged, and halves
 * with a loss (as TCP's: RFC 5681, in packets).
 *
 *   I15  A READ's response counts as its request does: its PSNs are on their way until they have
 *        come.  It is asked for in pieces of a window. */
#include "engine/transport/sq.h"
#include "segment/wire.h"

/* Default buffers have room for 25 packets of 4 KiB, as Linux counts them. */
#define WINDOW_FIRST 16u
#define WINDOW_LEAST 2u
#define WINDOW_MOST 512u
#define ACK_EVERY 16u /* packets, at most */

static struct nupa_qp_faults *window_of(struct nupa_qp *qp)
{
	struct nupa_qp_faults *w = nupa_qp_faults(qp);

	if (unlikely(!w->window_packets)) {
		w->window_packets = WINDOW_FIRST;
		w->threshold_packets = WINDOW_MOST;
		w->unacked_psn = w->sent_psn = qp->next_psn;
	}
	return w;
}

void nupa_flight_reset(struct nupa_qp *qp)
{
	if (qp->faults)
		qp->faults->window_packets = 0;
}

void nupa_flight_rewind(struct nupa_qp *qp)
{
	struct nupa_qp_faults *w = window_of(qp);

	if (nupa_psn_diff(qp->next_psn, w->sent_psn) > 0)
		w->sent_psn = qp->next_psn;
}

bool nupa_flight_was_sent(struct nupa_qp *qp, uint32_t *psn)
{
	const struct nupa_qp_faults *w = window_of(qp);

	if (nupa_psn_diff(*psn, qp->next_psn) < 0)
		return true;
	if (nupa_psn_diff(*psn, w->sent_psn) >= 0)
		return false;
	*psn = nupa_psn_add(qp->next_psn, 0xffffff);
	return true;
}

bool nupa_flight_is_repeated(const struct nupa_qp *qp, uint32_t psn)
{
	const struct nupa_qp_faults *w = qp->faults;

	return w && w->window_packets && nupa_psn_diff(psn, w->sent_psn) < 0;
}

bool nupa_flight_asks(const struct nupa_qp *qp, uint32_t psn)
{
	const struct nupa_qp_faults *w = qp->faults;
	uint32_t every = ACK_EVERY;

	/* Twice a window: a responder may answer nothing else (rdma_rxe). */
	while (w && w->window_packets && every > 1 && every > w->window_packets / 2)
		every /= 2;
	return psn % every == every - 1;
}

uint32_t nupa_flight_packets(struct nupa_qp *qp)
{
	const int32_t n = nupa_psn_diff(qp->next_psn, window_of(qp)->unacked_psn);

	return n > 0 ? (uint32_t)n : 0;
}

bool nupa_flight_open(struct nupa_qp *qp)
{
	const struct nupa_qp_faults *w = window_of(qp);

	if (nupa_psn_diff(qp->next_psn, w->unacked_psn) < (int32_t)w->window_packets)
		return true;
	/* Of a request that is not all sent no timer runs yet. */
	if (!qp->retrying)
		nupa_retry_start(qp);
	return nupa_sq_wait(qp, NUPA_WAIT_WINDOW, 0, 0);
}

void nupa_flight_acked(struct nupa_qp *qp, uint32_t psn)
{
	struct nupa_qp_faults *w = window_of(qp);
	int32_t n = nupa_psn_diff(nupa_psn_add(psn, 1), w->unacked_psn);

	if (n <= 0 || nupa_psn_diff(psn, qp->next_psn) >= 0)
		return;
	w->unacked_psn = nupa_psn_add(psn, 1);
	if (nupa_psn_diff(w->sent_psn, w->unacked_psn) < 0)
		w->sent_psn = w->unacked_psn; /* not left behind by half of all PSNs */
	if (w->halved && nupa_psn_diff(psn, w->lost_psn) >= 0)
		w->halved = false;
	w->window_acked += (uint32_t)n;
	if (w->window_packets < w->threshold_packets) { /* slow start */
		w->window_packets += w->window_acked;
		w->window_acked = 0;
	} else if (w->window_acked >= w->window_packets) {
		w->window_acked -= w->window_packets;
		w->window_packets++;
	}
	if (w->window_packets > WINDOW_MOST)
		w->window_packets = WINDOW_MOST;
}

static void count_lost(const struct nupa_qp *qp)
{
	const struct nupa_fabric *fabric = qp->engine->fabric;
	const int index = nupa_wire_of_host(fabric, qp->channel->peer_host);
	struct nupa_wire_entry *entry = index < 0 ? NULL : nupa_wire_at(fabric, (uint32_t)index);

	if (entry) /* its keeper may end between the two looks */
		__atomic_fetch_add(&entry->lost, 1, __ATOMIC_RELAXED);
}

void nupa_flight_lost(struct nupa_qp *qp, bool all)
{
	struct nupa_qp_faults *w = window_of(qp);

	if (!all) /* a time-out comes here again when it goes back */
		count_lost(qp);
	if (w->halved && !all)
		return; /* for what was sent with it */
	w->halved = true;
	w->lost_psn = qp->next_psn;
	w->window_acked = 0;
	w->threshold_packets =
	    w->window_packets / 2 > WINDOW_LEAST ? w->window_packets / 2 : WINDOW_LEAST;
	w->window_packets = all ? WINDOW_LEAST : w->threshold_packets;
}

uint32_t nupa_flight_read_bytes(struct nupa_qp *qp)
{
	return window_of(qp)->window_packets * nupa_qp_mtu_bytes(qp);
}
