/* SPDX-License-Identifier: BSD-3-Clause
 * The receiving half of a stream (internal.h I2). */
#include "librdmacm/rsockets/internal.h"

#include <errno.h>

void rs_copy_in(struct rs_pieces *to, const void *from, size_t bytes)
{
	const uint8_t *at = from;

	while (bytes) {
		const struct iovec *piece = &to->iov[to->at];
		size_t n = piece->iov_len - to->offset;

		if (n > bytes)
			n = bytes;
		memcpy((uint8_t *)piece->iov_base + to->offset, at, n);
		at += n;
		bytes -= n;
		to->offset += n;
		to->left -= n;
		if (to->offset == piece->iov_len) {
			to->at++;
			to->offset = 0;
		}
	}
}

/* The error that is reported once, as SO_ERROR or by a call. */
int rs_take_error(struct rsocket *rs)
{
	return nupa_exchange_seq(&rs->error, 0);
}

static bool has_ended(struct rsocket *rs)
{
	return nupa_load_acquire(&rs->peer_shut) || nupa_load_acquire(&rs->peer_gone) ||
	       nupa_load_acquire(&rs->broken) || nupa_load_acquire(&rs->read_shut);
}

/* A receive would not block: there are bytes, or the end, or it would fail. */
bool rs_can_read(struct rsocket *rs)
{
	int state = nupa_load_acquire(&rs->state);

	if (state == RS_INIT)
		return true;
	if (state == RS_LISTENING)
		return nupa_load_acquire(&rs->queued) > 0;
	return has_ended(rs) ||
	       nupa_load_acquire(&rs->rx.arrived) != nupa_load_relaxed(&rs->rx.taken);
}

static void give_back(struct rsocket *rs)
{
	struct rs_rx *rx = &rs->rx;

	if (rx->unreported >= rx->bytes / 2 &&
	    rs_post_control(rs, RS_WIRE_CREDIT, rx->unreported, RS_WR_CONTROL))
		rx->unreported = 0;
}

/* Copies the bytes present, all of them or as many as *to* takes. */
static size_t take(struct rsocket *rs, struct rs_pieces *to, bool peek)
{
	struct rs_rx *rx = &rs->rx;
	uint64_t available = nupa_load_acquire(&rx->arrived) - rx->taken;
	size_t bytes = to->left < available ? to->left : (size_t)available;
	size_t at, first;

	if (!bytes)
		return 0;
	at = (size_t)(rx->taken % rx->bytes);
	first = rx->bytes - at < bytes ? rx->bytes - at : bytes;
	rs_copy_in(to, rx->ring + at, first);
	rs_copy_in(to, rx->ring, bytes - first);
	if (!peek) {
		nupa_store_release(&rx->taken, rx->taken + bytes);
		rx->unreported += (uint32_t)bytes;
		give_back(rs);
	}
	return bytes;
}

/* The result of a receive on a connection without bytes: 0 for the end, or an error. */
static int ending(struct rsocket *rs)
{
	int state = nupa_load_acquire(&rs->state);

	if (nupa_load_acquire(&rs->closing))
		return EBADF;
	if (state == RS_INIT || state == RS_LISTENING)
		return nupa_load_relaxed(&rs->error) ? rs_take_error(rs) : ENOTCONN;
	if (nupa_load_acquire(&rs->peer_shut) || nupa_load_acquire(&rs->read_shut))
		return 0;
	return nupa_load_acquire(&rs->broken) ? rs_take_error(rs) : 0;
}

/* Bytes received; 0: the end.  -1 with errno: EAGAIN, ECONNRESET, ENOTCONN, EINTR, EBADF. */
ssize_t rs_stream_receive(struct rsocket *rs, struct rs_pieces *to, int flags)
{
	bool may_block = !(flags & MSG_DONTWAIT) && !nupa_load_relaxed(&rs->nonblocking);
	int64_t deadline_ns = rs_deadline(may_block ? rs->options.receive_ns : 0);
	size_t all = to->left, got = 0;
	int code = 0;

	while (got < all) {
		/* First checks whether it has ended, then which bytes are there (I2). */
		int state = nupa_load_acquire(&rs->state);
		bool ended = state == RS_INIT || state == RS_LISTENING || has_ended(rs);

		pthread_mutex_lock(&rs->rx.lock);
		if (nupa_load_acquire(&rs->rx.arrived) == rs->rx.taken)
			rs_progress(rs);
		got += take(rs, to, flags & MSG_PEEK);
		pthread_mutex_unlock(&rs->rx.lock);
		if (got == all || (got && (flags & (MSG_WAITALL | MSG_PEEK)) != MSG_WAITALL))
			break;
		if (ended) {
			code = ending(rs);
			break;
		}
		if (rs_can_read(rs))
			continue;
		if (!may_block) {
			code = EAGAIN;
			break;
		}
		if (rs_wait(rs, rs_can_read, deadline_ns)) {
			code = errno;
			break;
		}
	}
	return got || !code ? (ssize_t)got : RS_ERROR(code);
}
