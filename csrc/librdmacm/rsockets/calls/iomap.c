/* SPDX-License-Identifier: BSD-3-Clause
 * Direct placement: riomap writes an entry into the peer's table, riowrite writes to the memory of
 * an entry of this end's table.  RDMA keeps the order: later data arrives later. */
#include "librdmacm/rsockets/internal.h"

#include <endian.h>
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PIECE_MAX (64u << 10)

static bool is_connected(struct rsocket *rs)
{
	return nupa_load_acquire(&rs->state) == RS_CONNECTED && !nupa_load_acquire(&rs->broken) &&
	       !nupa_load_acquire(&rs->peer_gone);
}

/* riomap() may follow raccept() at once: it waits until the peer has sent something. */
static bool is_heard_of(struct rsocket *rs)
{
	return nupa_load_acquire(&rs->state) != RS_ACCEPTED || nupa_load_acquire(&rs->broken) ||
	       nupa_load_acquire(&rs->peer_gone);
}

static bool has_control_room(struct rsocket *rs)
{
	return !is_connected(rs) || nupa_load_acquire(&rs->control_free) > 0;
}

/* Stores *entry* at *index* of the peer's table.  Under tx.lock. */
static int write_entry(struct rsocket *rs, int index, const struct rs_wire_mapping *entry)
{
	struct ibv_sge sge = { .addr = (uintptr_t)entry, .length = sizeof(*entry) };
	struct ibv_send_wr *bad, wr = {
		.wr_id = rs_wr_id(RS_WR_CONTROL, 0, 1),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
		.wr.rdma = { rs->io.peer_addr + (uint64_t)index * sizeof(*entry),
			     rs->io.peer_rkey },
	};

	while (nupa_fetch_add_seq(&rs->control_free, -1) <= 0) {
		nupa_fetch_add_seq(&rs->control_free, 1);
		if (rs_wait(rs, has_control_room, RS_FOREVER))
			return -1;
		if (!is_connected(rs))
			return RS_ERROR(ENOTCONN);
	}
	errno = ibv_post_send(rs->qp, &wr, &bad);
	return errno ? -1 : 0;
}

static int free_index(struct rsocket *rs)
{
	for (uint32_t index = 0; index < rs->io.peer_entries && index < INT32_MAX; index++) {
		struct nupa_list *at = rs->io.mapped.next;

		while (at != &rs->io.mapped &&
		       container_of(at, struct rs_iomap, link)->index != (int)index)
			at = at->next;
		if (at == &rs->io.mapped)
			return (int)index;
	}
	return RS_ERROR(ENOMEM);
}

static int tell_peer(struct rsocket *rs, struct rs_iomap *map, off_t offset)
{
	struct rs_wire_mapping entry = {
		.offset = htobe64((uint64_t)offset),
		.addr = htobe64((uintptr_t)map->addr),
		.bytes = htobe64(map->bytes),
		.rkey = htonl(map->mr->rkey),
	};

	map->index = free_index(rs);
	return map->index < 0 ? -1 : write_entry(rs, map->index, &entry);
}

static off_t map_locked(struct rsocket *rs, void *buf, size_t len, int prot, off_t offset)
{
	struct rs_iomap *map;
	int access = IBV_ACCESS_LOCAL_WRITE;

	if (!is_heard_of(rs) && rs_wait(rs, is_heard_of, RS_FOREVER))
		return -1;
	if (!is_connected(rs))
		return RS_ERROR(ENOTCONN);
	map = calloc(1, sizeof(*map));
	if (!map)
		return RS_ERROR(ENOMEM);
	if (prot & PROT_WRITE)
		access |= IBV_ACCESS_REMOTE_WRITE;
	map->addr = buf;
	map->bytes = len;
	map->index = -1;
	map->mr = ibv_reg_mr(rs->id->pd, buf, len, access);
	if (!map->mr) {
		free(map);
		return -1;
	}
	if ((prot & PROT_WRITE) && tell_peer(rs, map, offset)) {
		int code = errno;

		ibv_dereg_mr(map->mr);
		free(map);
		return RS_ERROR(code);
	}
	nupa_list_add(&rs->io.mapped, &map->link);
	return offset;
}

/* The offset; -1 with errno: EINVAL, ENOTCONN, ENOMEM when the peer's table (its RDMA_IOMAPSIZE) is
 * full. */
off_t riomap(int socket, void *buf, size_t len, int prot, int flags, off_t offset)
{
	struct rsocket *rs = rs_get(socket);
	off_t result;

	if (!rs)
		return -1;
	if (offset == -1)
		offset = (off_t)(uintptr_t)buf;
	if (!len || (prot & ~PROT_WRITE) || flags || offset < 0 || rs->datagrams) {
		result = RS_ERROR(EINVAL);
	} else {
		pthread_mutex_lock(&rs->tx.lock);
		result = map_locked(rs, buf, len, prot, offset);
		pthread_mutex_unlock(&rs->tx.lock);
	}
	rs_put(rs);
	return result;
}

static int unmap_locked(struct rsocket *rs, const void *buf, size_t len)
{
	static const struct rs_wire_mapping none;

	for (struct nupa_list *at = rs->io.mapped.next; at != &rs->io.mapped; at = at->next) {
		struct rs_iomap *map = container_of(at, struct rs_iomap, link);
		int result = 0;

		if (map->addr != buf || map->bytes != len)
			continue;
		/* A peer that is gone gets no message. */
		if (map->index >= 0 && is_connected(rs))
			result = write_entry(rs, map->index, &none);
		nupa_list_del(&map->link);
		ibv_dereg_mr(map->mr);
		free(map);
		return result;
	}
	return RS_ERROR(EINVAL);
}

/* -1 with errno: EINVAL if this was not mapped. */
int riounmap(int socket, void *buf, size_t len)
{
	struct rsocket *rs = rs_get(socket);
	int result;

	if (!rs)
		return -1;
	pthread_mutex_lock(&rs->tx.lock);
	result = unmap_locked(rs, buf, len);
	pthread_mutex_unlock(&rs->tx.lock);
	rs_put(rs);
	return result;
}

/* The peer's mapping that has *offset*: its address there, its key, and how far it goes. */
static bool find_mapping(struct rsocket *rs, uint64_t offset, uint64_t *addr, uint32_t *rkey,
			 uint64_t *bytes)
{
	for (uint32_t i = 0; i < rs->io.entries; i++) {
		struct rs_wire_mapping entry = rs->io.table[i];
		uint64_t from = be64toh(entry.offset), length = be64toh(entry.bytes);

		if (offset < from || offset - from >= length)
			continue;
		*addr = be64toh(entry.addr) + (offset - from);
		*rkey = ntohl(entry.rkey);
		*bytes = length - (offset - from);
		return true;
	}
	return false;
}

static bool has_write_room(struct rsocket *rs)
{
	struct rs_tx *tx = &rs->tx;

	return !is_connected(rs) || (nupa_load_acquire(&tx->wr_free) > 0 &&
				     tx->head - nupa_load_acquire(&tx->tail) < tx->bytes);
}

/* 1: a piece was written; 0: no room; -1 with errno. */
static int write_piece(struct rsocket *rs, struct rs_pieces *from, uint64_t offset)
{
	struct rs_tx *tx = &rs->tx;
	uint32_t bytes, rkey;
	uint64_t addr, room;
	uint8_t *data;
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };

	if (!is_heard_of(rs))
		return 0;
	if (!is_connected(rs))
		return RS_ERROR(nupa_load_acquire(&rs->state) == RS_CONNECTED ? EPIPE : ENOTCONN);
	if (!find_mapping(rs, offset, &addr, &rkey, &room))
		return RS_ERROR(EINVAL);
	if (nupa_load_acquire(&tx->wr_free) <= 0)
		return 0;
	if (room > from->left)
		room = from->left;
	bytes = room > PIECE_MAX ? PIECE_MAX : (uint32_t)room;
	data = rs_stage(rs, &bytes);
	if (!data)
		return 0;
	rs_copy_out(from, data, bytes);
	sge = (struct ibv_sge){ (uintptr_t)data, bytes, tx->lkey };
	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = rkey;
	return rs_post_data(rs, &wr, bytes) ? -1 : 1;
}

/* Bytes written; -1 with errno: EINVAL where the peer has mapped nothing, EAGAIN, EPIPE, ENOTCONN.
 */
size_t riowrite(int socket, const void *buf, size_t count, off_t offset, int flags)
{
	struct rsocket *rs = rs_get(socket);
	struct iovec piece = { (void *)(uintptr_t)buf, count };
	struct rs_pieces from = { .iov = &piece, .n = 1, .left = count };
	int code = 0;

	if (!rs)
		return (size_t)-1;
	pthread_mutex_lock(&rs->tx.lock);
	while (from.left && !code) {
		int n = write_piece(rs, &from, (uint64_t)offset + (count - from.left));

		if (n < 0)
			code = errno;
		if (n)
			continue;
		rs_progress(rs);
		if (has_write_room(rs))
			continue;
		if ((flags & MSG_DONTWAIT) || nupa_load_relaxed(&rs->nonblocking))
			code = EAGAIN;
		else if (rs_wait(rs, has_write_room, rs_deadline(rs->options.send_ns)))
			code = errno;
	}
	pthread_mutex_unlock(&rs->tx.lock);
	rs_put(rs);
	if (from.left == count && code)
		return (size_t)RS_ERROR(code);
	return count - from.left;
}
