/* SPDX-License-Identifier: BSD-3-Clause
 * Movers: how bulk goes between our memory and a peer's.  Executes one-sided operations
 * straight into the target's memory where it can prove that they are allowed; whatever it cannot
 * prove is asked of the responder, which alone refuses. */
#define _GNU_SOURCE
#include "engine.h"

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
	if (channel->peer_pid == (uint32_t)getpid() && forced != NUPA_MOVER_CMA &&
	    forced != NUPA_MOVER_RELAY && forced != NUPA_MOVER_POOL) {
		channel->mover = NUPA_MOVER_LOCAL;
		return 0;
	}
	channel->mover = NUPA_MOVER_RELAY;
	if (forced == NUPA_MOVER_RELAY || forced == NUPA_MOVER_POOL)
		return 0;
	if (forced == NUPA_MOVER_LOCAL)
		return -ENOTSUP;
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
	channel->cma_errno =
	    n < 0 ? errno : ESRCH; /* another pid namespace answers with other data */
	return forced == NUPA_MOVER_CMA ? -ENOTSUP : 0;
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

/* Behind the first bytes of a vector. */
static void iov_advance(struct iovec **iov, unsigned long *n, size_t bytes)
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

static enum nupa_direct cma_move(struct nupa_channel *channel, const struct nupa_span *spans,
				 uint32_t n_spans, uint64_t remote_va, uint64_t bytes, bool write)
{
	struct iovec local[NUPA_SGE_MAX];
	struct iovec *first = local;
	struct iovec remote = { (void *)(uintptr_t)remote_va, bytes };
	unsigned long n = 0;

	for (uint32_t i = 0; i < n_spans; i++)
		if (spans[i].bytes)
			local[n++] = (struct iovec){ spans[i].va, spans[i].bytes };
	while (remote.iov_len) {
		ssize_t moved =
		    write ? process_vm_writev((pid_t)channel->peer_pid, first, n, &remote, 1, 0)
			  : process_vm_readv((pid_t)channel->peer_pid, first, n, &remote, 1, 0);

		if (unlikely(moved <= 0)) {
			if (moved < 0 && errno == EFAULT)
				return spans_readable(spans, n_spans) ? NUPA_DIRECT_REMOTE_FAULT
								      : NUPA_DIRECT_LOCAL_FAULT;
			if (moved < 0 && errno == ESRCH)
				return NUPA_DIRECT_NOT_READY; /* the death watch will tell */
			return NUPA_DIRECT_ASK;
		}
		if (likely((size_t)moved == remote.iov_len))
			break;
		remote.iov_base = (char *)remote.iov_base + moved;
		remote.iov_len -= (size_t)moved;
		iov_advance(&first, &n, (size_t)moved);
	}
	return NUPA_DIRECT_DONE;
}

static enum nupa_direct direct_atomic(const struct nupa_wqe *wqe, uint8_t *target,
				      const struct nupa_span *spans, uint32_t n_spans)
{
	uint64_t *word = (uint64_t *)(void *)target;
	uint64_t original;

	if ((uintptr_t)target & 7)
		return NUPA_DIRECT_ASK; /* refused there: IBTA 9.4.5 wants natural alignment */
	if (wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		original = wqe->compare_add;
		nupa_cas_seq(word, &original, wqe->swap);
	} else {
		original = nupa_fetch_add_seq(word, wqe->compare_add);
	}
	nupa_spans_copy(spans, n_spans, 0, &original, sizeof(original), true);
	return NUPA_DIRECT_DONE;
}

static enum nupa_direct move(struct nupa_engine *engine, struct nupa_channel *channel,
			     const struct nupa_wqe *wqe, const struct nupa_mr_entry *entry,
			     const struct nupa_span *spans, uint32_t n_spans)
{
	uint64_t offset = wqe->raddr - entry->iova;
	uint64_t bytes = wqe->length_bytes;
	bool write = wqe->opcode == IBV_WR_RDMA_WRITE || wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool on_demand = (entry->access & IBV_ACCESS_ON_DEMAND) != 0;
	uint8_t *target = NULL;

	if (entry->pool_off != UINT64_MAX && engine->forced_mover != NUPA_MOVER_RELAY &&
	    engine->forced_mover != NUPA_MOVER_CMA) {
		uint64_t pool_bytes = engine->fabric->geometry.pool_bytes;
		uint8_t *pool = nupa_fabric_pool(engine->fabric);

		/* I5: the entry is the peer's word. */
		if (!pool || entry->pool_off > pool_bytes ||
		    entry->length > pool_bytes - entry->pool_off)
			return NUPA_DIRECT_ASK;
		target = pool + entry->pool_off + offset;
	} else if (channel->mover == NUPA_MOVER_LOCAL && !on_demand) {
		target = (uint8_t *)(uintptr_t)(entry->va + offset);
	}
	if (wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wqe->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		return target ? direct_atomic(wqe, target, spans, n_spans) : NUPA_DIRECT_ASK;
	if (target) {
		nupa_spans_copy(spans, n_spans, 0, target, bytes, !write);
		return NUPA_DIRECT_DONE;
	}
	/* LOCAL comes here for memory that may not be there: the kernel copies, and says so. */
	if (channel->mover != NUPA_MOVER_CMA && channel->mover != NUPA_MOVER_LOCAL)
		return NUPA_DIRECT_ASK;
	return cma_move(channel, spans, n_spans, entry->va + offset, bytes, write);
}

static uint32_t access_needed(uint8_t opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_READ:
		return IBV_ACCESS_REMOTE_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_ACCESS_REMOTE_ATOMIC;
	default:
		return IBV_ACCESS_REMOTE_WRITE;
	}
}

enum nupa_direct nupa_mover_direct(struct nupa_engine *engine, struct nupa_qp *qp,
				   struct nupa_wqe *wqe, const struct nupa_span *spans,
				   uint32_t n_spans)
{
	struct nupa_channel *channel = qp->channel;
	const struct nupa_superblock *sb = &engine->fabric->geometry;
	uint32_t qp_index = qp->dest_qpn & (NUPA_QP_MAX - 1);
	uint32_t mr_index = wqe->rkey >> NUPA_KEY_VARIANT_BITS;
	uint32_t access = access_needed(wqe->opcode);
	const struct nupa_qp_entry *peer;
	const struct nupa_mr_entry *entry;
	enum nupa_direct result;
	uint8_t state;

	/* I5: indices against what the owner has backed and the layout has room for. */
	if (qp_index >= sb->qp_entries ||
	    qp_index >= nupa_load_acquire(&channel->peer_slot->qp_limit))
		return NUPA_DIRECT_NOT_READY;
	peer = &channel->peer_qps[qp_index];
	state = nupa_load_acquire(&peer->state); /* C5 */
	if (nupa_load_relaxed(&peer->qpn) != qp->dest_qpn ||
	    nupa_load_relaxed(&peer->dest_qpn) != qp->ibv.qp_num ||
	    nupa_load_relaxed(&peer->type) != qp->type || state < IBV_QPS_RTR ||
	    state > IBV_QPS_SQE)
		return NUPA_DIRECT_NOT_READY;
	if (!(nupa_load_relaxed(&peer->access) & access))
		return NUPA_DIRECT_ASK;
	if (wqe->length_bytes == 0)
		return NUPA_DIRECT_DONE; /* IBTA 9.7.4.1.6: no key check for zero bytes */
	if (mr_index >= sb->mr_entries ||
	    mr_index >= nupa_load_acquire(&channel->peer_slot->mr_limit))
		return NUPA_DIRECT_ASK;
	entry = &channel->peer_mrs[mr_index];

	/* P4: announce, then look at the key.  If it is there, the owner's dereg, which clears the
	 * key and then looks for us, waits until we are done: the entry and its memory stay. */
	(void)nupa_exchange_seq(&engine->slot->hazard,
				(uint64_t)channel->peer << 32 | (mr_index + 1));
	if (nupa_load_seq(&entry->key) == wqe->rkey &&
	    nupa_mr_entry_permits(entry, wqe->rkey, nupa_load_relaxed(&peer->pd), qp->dest_qpn,
				  wqe->raddr, wqe->length_bytes, access))
		result = move(engine, channel, wqe, entry, spans, n_spans);
	else
		result = NUPA_DIRECT_ASK;
	nupa_store_release(&engine->slot->hazard, 0);

	if (result == NUPA_DIRECT_DONE) {
		if (wqe->opcode == IBV_WR_RDMA_READ)
			nupa_flow_rcv(channel, wqe->length_bytes);
		else
			nupa_flow_xmit(channel, wqe->length_bytes);
	}
	return result;
}

int nupa_mover_pull(struct nupa_channel *channel, const struct nupa_span *to, uint32_t n_to,
		    const struct nupa_pull *from, uint32_t n_from, uint64_t bytes)
{
	struct iovec local[NUPA_SGE_MAX], remote[NUPA_SGE_MAX];
	struct iovec *to_iov = local, *from_iov = remote;
	unsigned long n_to_iov = 0, n_from_iov = 0;
	uint64_t left = bytes;
	ssize_t moved;

	if (channel->mover == NUPA_MOVER_LOCAL) {
		uint64_t offset = 0;

		for (uint32_t i = 0; i < n_from; i++) {
			nupa_spans_copy(to, n_to, offset, (void *)(uintptr_t)from[i].va,
					from[i].bytes, true);
			offset += from[i].bytes;
		}
		return 0;
	}
	for (uint32_t i = 0; i < n_to && left; i++) {
		uint64_t n = to[i].bytes < left ? to[i].bytes : left;

		if (n)
			local[n_to_iov++] = (struct iovec){ to[i].va, n };
		left -= n;
	}
	for (uint32_t i = 0; i < n_from; i++)
		remote[n_from_iov++] =
		    (struct iovec){ (void *)(uintptr_t)from[i].va, from[i].bytes };
	/* One call moves 2 GiB at most (MAX_RW_COUNT): go on where it stopped. */
	while (bytes) {
		moved = process_vm_readv((pid_t)channel->peer_pid, to_iov, n_to_iov, from_iov,
					 n_from_iov, 0);
		if (moved <= 0)
			return moved < 0 ? -errno : -EFAULT;
		bytes -= (uint64_t)moved;
		iov_advance(&to_iov, &n_to_iov, (size_t)moved);
		iov_advance(&from_iov, &n_from_iov, (size_t)moved);
	}
	return 0;
}
