/* SPDX-License-Identifier: BSD-3-Clause
 * SENDs that the receiver fetches from the sender's memory: by the mapping of a region that it has
 * or makes, or by process_vm_readv.  The sender keeps the memory until it is answered. */
#define _GNU_SOURCE
#include "engine/channel/mover.h"

#include <errno.h>
#include <unistd.h>

enum nupa_pulls nupa_mover_pulls(const struct nupa_engine *engine,
				 const struct nupa_channel *channel)
{
	uint64_t from = 0, to;
	struct iovec local = { &to, sizeof(to) }, remote = { &from, sizeof(from) };

	if (channel->mover != NUPA_MOVER_CMA &&
	    (channel->mover != NUPA_MOVER_LOCAL ||
	     process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != (ssize_t)sizeof(to)))
		return NUPA_PULLS_NOTHING;
	return engine->forced_mover == NUPA_MOVER_CMA ? NUPA_PULLS_BY_KERNEL : NUPA_PULLS_MAPPED;
}

static int error_of(enum nupa_reach reached)
{
	return reached == NUPA_REACH_NO_SOURCE   ? -EFAULT
	       : reached == NUPA_REACH_NO_TARGET ? -EACCES
						 : 0;
}

/* Where it is mapped here, announced until nupa_window_leave; NULL: it is not. */
static uint8_t *mapped(struct nupa_engine *engine, struct nupa_channel *channel,
		       const struct nupa_pull *from)
{
	const struct nupa_window *window = nupa_window_open(engine, channel, from->lkey);
	uint64_t offset;

	if (!window)
		return NULL;
	offset = from->va - window->va;
	if (window->base && from->va >= window->va && offset <= window->length &&
	    from->bytes <= window->length - offset)
		return window->base + offset;
	nupa_window_leave(&engine->slot->hazard);
	return NULL;
}

bool nupa_mover_fetch(struct nupa_engine *engine, struct nupa_channel *channel,
		      const struct nupa_pull *from, uint8_t *to)
{
	const uint8_t *at = mapped(engine, channel, from);
	bool good = at && nupa_guard_copy(to, at, from->bytes);

	if (at)
		nupa_window_leave(&engine->slot->hazard);
	return good;
}

/* False: a piece is not mapped. */
static bool pull_mapped(struct nupa_engine *engine, struct nupa_channel *channel,
			const struct nupa_span *to, uint32_t n_to, const struct nupa_pull *from,
			uint32_t n_from, int *error)
{
	uint64_t done = 0;

	*error = 0;
	for (uint32_t i = 0; i < n_from && !*error; i++) {
		uint8_t *at = mapped(engine, channel, &from[i]);

		if (!at)
			return false;
		*error = error_of(nupa_spans_copy(to, n_to, done, at, from[i].bytes, true));
		nupa_window_leave(&engine->slot->hazard);
		done += from[i].bytes;
	}
	return true;
}

/* The rest of a pull that met memory that is gone or protected. */
static int pull_reach(const struct nupa_channel *channel, struct iovec *to, unsigned long n_to,
		      struct iovec *from, unsigned long n_from)
{
	enum nupa_reach result = NUPA_REACH_DONE;

	while (n_to && n_from && result == NUPA_REACH_DONE) {
		size_t bytes = to->iov_len < from->iov_len ? to->iov_len : from->iov_len;

		result = nupa_reach_copy(0, (uintptr_t)to->iov_base, (pid_t)channel->peer_pid,
					 (uintptr_t)from->iov_base, bytes);
		nupa_iov_advance(&to, &n_to, bytes);
		nupa_iov_advance(&from, &n_from, bytes);
	}
	return nupa_channel_process_alive(channel) ? error_of(result) : -ESRCH;
}

/* The kernel copies within this process, too: a list that is not what was sent (I5) leads to memory
 * that is not there. */
static int pull_by_kernel(struct nupa_channel *channel, const struct nupa_span *to, uint32_t n_to,
			  const struct nupa_pull *from, uint32_t n_from, uint64_t bytes)
{
	struct iovec local[NUPA_SGE_MAX], remote[NUPA_SGE_MAX];
	struct iovec *to_iov = local, *from_iov = remote;
	unsigned long n_to_iov = 0, n_from_iov = 0;
	uint64_t left = bytes, fault_ns = 0;
	ssize_t moved;

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
		if (moved < 0 && errno == EFAULT && nupa_mover_may_be_in_promotion(&fault_ns))
			continue;
		if (moved < 0 && errno == EFAULT)
			return pull_reach(channel, to_iov, n_to_iov, from_iov, n_from_iov);
		if (moved <= 0)
			return moved < 0 ? -errno : -EFAULT;
		bytes -= (uint64_t)moved;
		nupa_iov_advance(&to_iov, &n_to_iov, (size_t)moved);
		nupa_iov_advance(&from_iov, &n_from_iov, (size_t)moved);
	}
	return 0;
}

int nupa_mover_pull(struct nupa_engine *engine, struct nupa_channel *channel,
		    const struct nupa_span *to, uint32_t n_to, const struct nupa_pull *from,
		    uint32_t n_from, uint64_t bytes)
{
	int error;

	if (engine->forced_mover == NUPA_MOVER_CMA ||
	    !pull_mapped(engine, channel, to, n_to, from, n_from, &error))
		error = pull_by_kernel(channel, to, n_to, from, n_from, bytes);
	return error;
}
