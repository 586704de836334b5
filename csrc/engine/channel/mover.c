/* SPDX-License-Identifier: BSD-3-Clause
 * Movers: the ways in which bulk data moves between our memory and a peer's.  One-sided operations
 * are executed straight into the target's memory where they are provably allowed.  All others are
 * sent to the responder, which alone refuses. */
#define _GNU_SOURCE
#include "engine/channel/mover.h"
#include "segment/control/pkey.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

int nupa_mover_probe(struct nupa_engine *engine, struct nupa_channel *channel)
{
	uint64_t value = 0;
	uint64_t expected = nupa_load_relaxed(&channel->peer_slot->probe_value);
	struct iovec local = { &value, sizeof(value) };
	struct iovec remote = {
		(void *)(uintptr_t)nupa_load_relaxed(&channel->peer_slot->probe_addr), sizeof(value)
	};
	enum nupa_mover forced = engine->forced_mover;
	ssize_t n;

	channel->cma_errno = 0;
	if (nupa_channel_same_process(channel) &&
	    (forced == NUPA_MOVER_NONE || forced == NUPA_MOVER_LOCAL)) {
		channel->mover = NUPA_MOVER_LOCAL;
		return 0;
	}
	channel->mover = NUPA_MOVER_RELAY;
	if (forced == NUPA_MOVER_RELAY || forced == NUPA_MOVER_POOL || forced == NUPA_MOVER_SHARED)
		return 0;
	if (forced == NUPA_MOVER_LOCAL)
		return -ENOTSUP;
	if (channel->foreign) { /* in another pid namespace */
		channel->cma_errno = ESRCH;
		return forced == NUPA_MOVER_CMA ? -ENOTSUP : 0;
	}
	n = process_vm_readv((pid_t)channel->peer_pid, &local, 1, &remote, 1, 0);
	if (n == (ssize_t)sizeof(value) && value == expected) {
		/* Reading works; writing is asked of the kernel with nothing to write. */
		local.iov_base = &value;
		if (process_vm_writev((pid_t)channel->peer_pid, &local, 1, &remote, 1, 0) ==
		    (ssize_t)sizeof(value)) {
			channel->mover = NUPA_MOVER_CMA;
			return 0;
		}
	}
	channel->cma_errno = n < 0 ? errno : ESRCH;
	return forced == NUPA_MOVER_CMA ? -ENOTSUP : 0;
}

#define PROMOTION_NS 20000000u

bool nupa_mover_may_be_in_promotion(uint64_t *since_ns)
{
	uint64_t now_ns = nupa_clock_ns();

	if (!*since_ns)
		*since_ns = now_ns;
	sched_yield();
	return now_ns - *since_ns < PROMOTION_NS;
}

/* EFAULT does not say whose memory it was. */
static bool spans_readable(const struct nupa_span *spans, uint32_t n_spans)
{
	for (uint32_t i = 0; i < n_spans; i++) {
		uint8_t byte[2];
		struct iovec local[2] = { { &byte[0], 1 }, { &byte[1], 1 } };
		struct iovec remote[2] = { { spans[i].va, 1 },
					   { spans[i].va + spans[i].bytes - 1, 1 } };

		if (spans[i].bytes && process_vm_readv(getpid(), local, 2, remote, 2, 0) != 2)
			return false;
	}
	return true;
}

void nupa_iov_advance(struct iovec **iov, unsigned long *n, size_t bytes)
{
	while (bytes && *n) {
		size_t step = (*iov)->iov_len < bytes ? (*iov)->iov_len : bytes;

		(*iov)->iov_base = (char *)(*iov)->iov_base + step;
		(*iov)->iov_len -= step;
		bytes -= step;
		if (!(*iov)->iov_len) {
			(*iov)++;
			(*n)--;
		}
	}
}

/* The rest of a move that met memory that is gone or protected: one span after the other. */
static enum nupa_direct cma_reach(const struct nupa_channel *channel, const struct iovec *local,
				  unsigned long n, uint64_t remote, bool write)
{
	enum nupa_reach result = NUPA_REACH_DONE;
	pid_t peer = (pid_t)channel->peer_pid;

	for (unsigned long i = 0; i < n && result == NUPA_REACH_DONE; i++) {
		uint64_t at = (uintptr_t)local[i].iov_base, bytes = local[i].iov_len;

		result = write ? nupa_reach_copy(peer, remote, 0, at, bytes)
			       : nupa_reach_copy(0, at, peer, remote, bytes);
		remote += bytes;
	}
	if (!nupa_channel_process_alive(channel))
		return NUPA_DIRECT_NOT_READY; /* the death watch will tell */
	if (result == NUPA_REACH_DONE)
		return NUPA_DIRECT_DONE;
	return (result == NUPA_REACH_NO_SOURCE) == write ? NUPA_DIRECT_LOCAL_FAULT
							 : NUPA_DIRECT_REMOTE_FAULT;
}

/* The kernel takes each piece of the peer's memory for itself, in order: the last bytes are one, so
 * that they are stored last. */
static unsigned long cma_pieces(struct iovec pieces[2], uint64_t va, uint64_t bytes, bool write)
{
	uint64_t last = write ? nupa_guard_last((void *)(uintptr_t)va, bytes) : bytes;

	pieces[0] = (struct iovec){ (void *)(uintptr_t)va, bytes - last };
	pieces[1] = (struct iovec){ (void *)(uintptr_t)(va + bytes - last), last };
	return bytes == last ? 1 : 2;
}

static enum nupa_direct cma_move(struct nupa_channel *channel, const struct nupa_span *spans,
				 uint32_t n_spans, const struct nupa_window *window,
				 uint64_t offset, uint64_t bytes, bool write)
{
	uint64_t remote_va = window->va + offset;
	struct iovec local[NUPA_SGE_MAX], remote[2];
	struct iovec *first = local;
	unsigned long n = 0;
	uint64_t fault_ns = 0;

	for (uint32_t i = 0; i < n_spans; i++)
		if (spans[i].bytes)
			local[n++] = (struct iovec){ spans[i].va, spans[i].bytes };
	while (bytes) {
		unsigned long n_remote = cma_pieces(remote, remote_va, bytes, write);
		struct iovec *piece = &remote[2 - n_remote];
		ssize_t moved =
		    write
			? process_vm_writev((pid_t)channel->peer_pid, first, n, piece, n_remote, 0)
			: process_vm_readv((pid_t)channel->peer_pid, first, n, piece, n_remote, 0);

		if (unlikely(moved <= 0)) {
			if (moved < 0 && errno == EFAULT &&
			    nupa_mover_may_be_in_promotion(&fault_ns))
				continue;
			if (moved < 0 && errno == EFAULT && window->access & IBV_ACCESS_ON_DEMAND)
				return spans_readable(spans, n_spans) ? NUPA_DIRECT_REMOTE_FAULT
								      : NUPA_DIRECT_LOCAL_FAULT;
			if (moved < 0 && errno == EFAULT)
				return cma_reach(channel, first, n, remote_va, write);
			if (moved < 0 && errno == ESRCH)
				return NUPA_DIRECT_NOT_READY; /* the death watch will tell */
			return NUPA_DIRECT_ASK;
		}
		if (likely((uint64_t)moved == bytes))
			break;
		remote_va += (uint64_t)moved;
		bytes -= (uint64_t)moved;
		nupa_iov_advance(&first, &n, (size_t)moved);
	}
	return NUPA_DIRECT_DONE;
}

static enum nupa_direct local_fault(enum nupa_reach reached, bool source)
{
	if (likely(reached == NUPA_REACH_DONE))
		return NUPA_DIRECT_DONE;
	return (reached == NUPA_REACH_NO_SOURCE) == source ? NUPA_DIRECT_LOCAL_FAULT
							   : NUPA_DIRECT_REMOTE_FAULT;
}

/* The spans one behind the other, with the last bytes last as well. */
static enum nupa_direct gather(uint8_t *target, const struct nupa_span *spans, uint32_t n_spans,
			       uint64_t bytes)
{
	enum nupa_reach reached = NUPA_REACH_DONE;
	uint64_t done = 0;

	for (uint32_t i = 0; i < n_spans && done < bytes && reached == NUPA_REACH_DONE; i++) {
		reached = nupa_copy_in_order(target + done, spans[i].va, spans[i].bytes);
		done += spans[i].bytes;
		__atomic_thread_fence(__ATOMIC_RELEASE);
	}
	return local_fault(reached, true);
}

static enum nupa_direct direct_atomic(const struct nupa_wqe *wqe, uint8_t *target,
				      const struct nupa_span *spans, uint32_t n_spans)
{
	uint64_t original;

	if (!nupa_mover_atomic(wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP, target, wqe->compare_add,
			       wqe->swap, &original))
		return NUPA_DIRECT_ASK;
	return local_fault(nupa_spans_copy(spans, n_spans, 0, &original, sizeof(original), true),
			   false);
}

static enum nupa_direct atomic_write(uint8_t *target, const struct nupa_span *spans,
				     uint32_t n_spans)
{
	uint64_t value = 0;

	if ((uintptr_t)target & 7)
		return NUPA_DIRECT_ASK; /* refused there */
	if (nupa_spans_copy(spans, n_spans, 0, &value, sizeof(value), false) != NUPA_REACH_DONE)
		return NUPA_DIRECT_LOCAL_FAULT;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	if (!nupa_guard_store((uint64_t *)(void *)target, value))
		return NUPA_DIRECT_ASK; /* and so is what is not there */
	return NUPA_DIRECT_DONE;
}

static enum nupa_direct move(struct nupa_channel *channel, const struct nupa_wqe *wqe,
			     const struct nupa_window *window, const struct nupa_span *spans,
			     uint32_t n_spans, uint64_t from, uint64_t bytes)
{
	uint64_t offset = wqe->raddr + from - window->iova;
	bool write = wqe->opcode == IBV_WR_RDMA_WRITE || wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	uint8_t *target = (uint8_t *)((uintptr_t)window->base + offset); /* base may be NULL */

	if (wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wqe->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		return window->base ? direct_atomic(wqe, target, spans, n_spans) : NUPA_DIRECT_ASK;
	if (unlikely(wqe->opcode == IBV_WR_ATOMIC_WRITE))
		return window->base ? atomic_write(target, spans, n_spans) : NUPA_DIRECT_ASK;
	if (unlikely(!window->base))
		return cma_move(channel, spans, n_spans, window, offset, bytes, write);
	if (write)
		return gather(target, spans, n_spans, bytes);
	return local_fault(nupa_spans_copy(spans, n_spans, 0, target, bytes, true), false);
}

const uint32_t nupa_access_needed[32] = {
	[IBV_WR_RDMA_WRITE] = IBV_ACCESS_REMOTE_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_ACCESS_REMOTE_WRITE,
	[IBV_WR_RDMA_READ] = IBV_ACCESS_REMOTE_READ,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_ACCESS_REMOTE_ATOMIC,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_ACCESS_REMOTE_ATOMIC,
	[IBV_WR_ATOMIC_WRITE] = IBV_ACCESS_REMOTE_WRITE,
};

static uint64_t word_at(const void *at)
{
	return nupa_load_acquire((const uint64_t *)at);
}

/* The P_Key of a QP, from the first 64 bits of its entry. */
static uint16_t pkey_of(uint64_t identity)
{
	return (uint16_t)(identity >> 48);
}
NUPA_ASSERT_AT(struct nupa_qp_entry, pkey, 6);

/* IBTA 9.6.1.1.1; and a QP whose process has not yet seen that its host left the partition. */
static bool pkeys_match(const struct nupa_engine *engine, const struct nupa_qp *qp, uint16_t peer)
{
	const uint32_t host = qp->channel->peer_host;

	if (likely(nupa_pkeys_match(qp->pkey, peer) && nupa_pkey_held(engine->fabric, host, peer)))
		return true;
	nupa_pkey_violation(engine->fabric, host);
	return false;
}

/* Whether the peer QP is there, ready, connected to ours, and of its partition: then it is
 * remembered. */
static bool meet_peer_qp(const struct nupa_engine *engine, struct nupa_qp *qp)
{
	const struct nupa_channel *channel = qp->channel;
	uint32_t index = nupa_qpn_index(&qp->engine->fabric->geometry, qp->dest_qpn);
	const struct nupa_qp_entry *peer;
	uint64_t identity, rights;
	uint8_t state;

	qp->peer = NULL;
	/* I5: indices against what the owner has backed and the layout has room for. */
	if (index >= engine->fabric->geometry.qp_entries ||
	    index >= nupa_load_acquire(&channel->peer_slot->qp_limit))
		return false;
	peer = &channel->peer_qps[index];
	identity = word_at(&peer->qpn);
	state = nupa_load_acquire(&peer->state); /* C5 */
	rights = word_at(&peer->access);
	if ((uint32_t)identity != qp->dest_qpn || (uint32_t)(rights >> 32) != qp->ibv.qp_num ||
	    nupa_load_relaxed(&peer->type) != qp->type || state < IBV_QPS_RTR ||
	    state > IBV_QPS_SQE || !pkeys_match(engine, qp, pkey_of(identity)))
		return false;
	qp->peer_pd = nupa_load_relaxed(&peer->pd);
	qp->peer_access = (uint32_t)rights;
	qp->peer_rights = rights;
	qp->peer_identity = identity;
	/* It changes state before and after anything else of it: what was read stands between. */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (word_at(&peer->qpn) != identity)
		return false;
	qp->peer = peer;
	return true;
}

enum nupa_direct nupa_mover_direct(struct nupa_engine *engine, struct nupa_qp *qp,
				   const struct nupa_wqe *wqe, const struct nupa_span *spans,
				   uint32_t n_spans, uint32_t from, uint32_t bytes)
{
	struct nupa_channel *channel = qp->channel;
	uint32_t access = nupa_access_needed[wqe->opcode & 31];
	const struct nupa_window *window;
	enum nupa_direct result = NUPA_DIRECT_ASK;

	if (!nupa_mover_knows_peer(qp) && !meet_peer_qp(engine, qp))
		return NUPA_DIRECT_NOT_READY;
	if (unlikely(!(qp->peer_access & access)))
		return NUPA_DIRECT_ASK;
	if (unlikely(wqe->length_bytes == 0))
		return NUPA_DIRECT_DONE; /* IBTA 9.7.4.1.6: no key check for zero bytes */
	window = nupa_window_open(engine, channel, wqe->rkey);
	if (unlikely(!window))
		return NUPA_DIRECT_ASK;
	if (likely(nupa_window_permits(window, qp->peer_pd, qp->dest_qpn, wqe->raddr,
				       wqe->length_bytes, access)))
		result = move(channel, wqe, window, spans, n_spans, from, bytes);
	nupa_window_leave(&engine->slot->hazard);
	if (likely(result == NUPA_DIRECT_DONE)) {
		if (wqe->opcode == IBV_WR_RDMA_READ)
			nupa_flow_rcv(channel, bytes);
		else
			nupa_flow_xmit(channel, bytes);
	}
	return result;
}
