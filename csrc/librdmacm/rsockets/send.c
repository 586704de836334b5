/* SPDX-License-Identifier: BSD-3-Clause
 * The sending half of a stream (internal.h I1). */
#include "librdmacm/rsockets/internal.h"

#include <arpa/inet.h>
#include <errno.h>

/* A long piece: small enough for the caches of both the sender's and the receiver's copy.  The next
 * WRITE waits for the acknowledgement of the one before, so pieces must not be too small. */
#define PIECE_MAX (128u << 10)
#define INLINE_MAX 512

static uint32_t least(uint64_t a, uint64_t b)
{
	return (uint32_t)(a < b ? a : b);
}

void rs_copy_out(struct rs_pieces *from, void *to, size_t bytes)
{
	uint8_t *at = to;

	while (bytes) {
		const struct iovec *piece = &from->iov[from->at];
		size_t n = piece->iov_len - from->offset;

		if (n > bytes)
			n = bytes;
		memcpy(at, (const uint8_t *)piece->iov_base + from->offset, n);
		at += n;
		bytes -= n;
		from->offset += n;
		from->left -= n;
		if (from->offset == piece->iov_len) {
			from->at++;
			from->offset = 0;
		}
	}
}

/* Room for up to *bytes in one piece of the buffer; *bytes is cut to that; NULL: none. */
uint8_t *rs_stage(struct rsocket *rs, uint32_t *bytes)
{
	struct rs_tx *tx = &rs->tx;
	uint32_t at = (uint32_t)(tx->head % tx->bytes);
	uint32_t room = tx->bytes - (uint32_t)(tx->head - nupa_load_acquire(&tx->tail));

	if (room > tx->bytes - at)
		room = tx->bytes - at;
	if (*bytes > room)
		*bytes = room;
	return room ? tx->buffer + at : NULL;
}

/* Posts one request of the data, *staged* bytes of which lie in the buffer.  Only some requests are
 * signaled; their completion stands for those before them. */
int rs_post_data(struct rsocket *rs, struct ibv_send_wr *wr, uint32_t staged)
{
	struct rs_tx *tx = &rs->tx;
	struct ibv_send_wr *bad;

	nupa_store_release(&tx->head, tx->head + staged);
	tx->silent_bytes += staged;
	tx->silent_wrs++;
	nupa_fetch_add_seq(&tx->wr_free, -1);
	if (tx->silent_wrs >= tx->silent_wrs_max || tx->silent_bytes >= tx->bytes / 4) {
		wr->wr_id = rs_wr_id(RS_WR_DATA, tx->silent_bytes, tx->silent_wrs);
		wr->send_flags |= IBV_SEND_SIGNALED;
		tx->silent_wrs = tx->silent_bytes = 0;
	}
	errno = ibv_post_send(rs->qp, wr, &bad);
	if (errno) {
		rs_break(rs, ECONNRESET);
		return -1;
	}
	return 0;
}

static void advance_ring(struct rs_tx *tx, uint32_t bytes)
{
	tx->ring_at += bytes;
	if (tx->ring_at >= tx->ring_bytes)
		tx->ring_at -= tx->ring_bytes;
	nupa_fetch_add_seq(&tx->credit, -(int64_t)bytes);
	nupa_fetch_add_seq(&tx->slots, -1);
}

/* One piece of *from*: 1; 0: there is no room for any now; -1: it failed. */
static int send_piece(struct rsocket *rs, struct rs_pieces *from)
{
	struct rs_tx *tx = &rs->tx;
	int64_t credit = nupa_load_acquire(&tx->credit);
	uint32_t bytes, staged = 0;
	uint8_t small[INLINE_MAX];
	uint8_t *data = small;
	bool is_short;
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1 };

	if (credit <= 0 || nupa_load_acquire(&tx->slots) <= 0 ||
	    nupa_load_acquire(&tx->wr_free) <= 0)
		return 0;
	bytes = least(from->left, (uint64_t)credit);
	is_short = bytes <= tx->short_bytes;
	if (!is_short) { /* as much as lies in one piece, and fits one */
		bytes = least(bytes, tx->ring_bytes - tx->ring_at);
		bytes = least(bytes, PIECE_MAX);
	}
	if (bytes > tx->inline_bytes) {
		data = rs_stage(rs, &bytes);
		if (!data)
			return 0;
		staged = bytes;
	} else {
		wr.send_flags = IBV_SEND_INLINE;
	}
	rs_copy_out(from, data, bytes);
	sge = (struct ibv_sge){ (uintptr_t)data, bytes, tx->lkey };
	if (is_short) {
		wr.opcode = IBV_WR_SEND_WITH_IMM;
		wr.imm_data = htonl(RS_WIRE_SHORT << RS_WIRE_KIND_SHIFT);
	} else {
		wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr.imm_data = htonl(bytes);
		wr.wr.rdma.remote_addr = tx->ring_addr + tx->ring_at;
		wr.wr.rdma.rkey = tx->ring_rkey;
	}
	advance_ring(tx, bytes);
	return rs_post_data(rs, &wr, staged) ? -1 : 1;
}

static bool has_room(struct rsocket *rs)
{
	struct rs_tx *tx = &rs->tx;

	return nupa_load_acquire(&tx->credit) > 0 && nupa_load_acquire(&tx->slots) > 0 &&
	       nupa_load_acquire(&tx->wr_free) > 0 &&
	       nupa_load_acquire(&tx->head) - nupa_load_acquire(&tx->tail) < tx->bytes;
}

/* A send would not block: there is room, or it would fail. */
bool rs_can_write(struct rsocket *rs)
{
	switch ((enum rs_state)nupa_load_acquire(&rs->state)) {
	case RS_CONNECTED:
		break;
	case RS_INIT:
	case RS_LISTENING:
		return true;
	default:
		return nupa_load_acquire(&rs->broken);
	}
	return nupa_load_acquire(&rs->write_shut) || nupa_load_acquire(&rs->broken) ||
	       nupa_load_acquire(&rs->peer_gone) || has_room(rs);
}

/* The errno of a send on a connection that cannot; 0: it can. */
static int fault(struct rsocket *rs)
{
	int state = nupa_load_acquire(&rs->state);

	if (nupa_load_acquire(&rs->closing))
		return EBADF;
	if (state == RS_INIT || state == RS_LISTENING)
		return nupa_load_relaxed(&rs->error) ? rs_take_error(rs) : ENOTCONN;
	if (nupa_load_acquire(&rs->write_shut))
		return EPIPE;
	if (nupa_load_acquire(&rs->broken) && nupa_load_relaxed(&rs->error))
		return rs_take_error(rs);
	if (nupa_load_acquire(&rs->broken) || nupa_load_acquire(&rs->peer_gone))
		return EPIPE;
	return 0;
}

/* As many bytes as the program's send may take, all of them if it may block.  -1 with errno:
 * EAGAIN, EPIPE, ECONNRESET, ENOTCONN, EINTR, EBADF. */
ssize_t rs_stream_send(struct rsocket *rs, struct rs_pieces *from, int flags)
{
	bool may_block = !(flags & MSG_DONTWAIT) && !nupa_load_relaxed(&rs->nonblocking);
	int64_t deadline_ns = may_block ? rs_deadline(rs->options.send_ns) : 0;
	size_t all = from->left;
	int code = 0;

	pthread_mutex_lock(&rs->tx.lock);
	while (!(code = fault(rs)) && from->left) {
		if (nupa_load_acquire(&rs->state) == RS_CONNECTED) {
			int n = send_piece(rs, from);

			if (n > 0)
				continue;
			if (n < 0) {
				code = errno;
				break;
			}
		}
		rs_progress(rs);
		if (nupa_load_acquire(&rs->state) != RS_CONNECTED)
			rs_take_cm_events(rs);
		if (rs_can_write(rs))
			continue;
		if (!may_block) {
			code = EAGAIN;
			break;
		}
		pthread_mutex_unlock(&rs->tx.lock);
		code = rs_wait(rs, rs_can_write, deadline_ns) ? errno : 0;
		pthread_mutex_lock(&rs->tx.lock);
		if (code)
			break;
	}
	pthread_mutex_unlock(&rs->tx.lock);
	if (all != from->left || !code)
		return (ssize_t)(all - from->left);
	return RS_ERROR(code);
}
