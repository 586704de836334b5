/* SPDX-License-Identifier: BSD-3-Clause
 * The objects of a connection: a queue pair, its completion queue, and one piece of memory.  The
 * memory has the ring that the peer writes, slots for its short pieces, and the data being sent. */
#include "librdmacm/rsockets/internal.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE UINT32_C(4096)
#define BUFFER_MIN (16 << 10)
#define BUFFER_MAX (256 << 20)
#define SLOT_BYTES 1024u
#define QUEUE_MIN 16
#define QUEUE_MAX 8192
#define INLINE_MIN ((uint32_t)sizeof(struct rs_wire_mapping))
#define INLINE_MAX 512

static int clamp(int value, int least, int most)
{
	return value < least ? least : value > most ? most : value;
}

static uint32_t pages(size_t bytes)
{
	return (uint32_t)((bytes + PAGE - 1) & ~(size_t)(PAGE - 1));
}

/* Ring and table are the peer's to write, the rest is private: two regions of one mapping. */
static int create_memory(struct rsocket *rs, struct ibv_pd *pd)
{
	struct rs_rx *rx = &rs->rx;
	struct rs_tx *tx = &rs->tx;
	size_t slots = (size_t)rx->n_slots * rx->slot_bytes;
	uint32_t remote = rx->bytes + pages(rs->io.entries * sizeof(*rs->io.table));
	uint32_t local = pages(slots) + tx->bytes;
	uint8_t *at;

	rs->memory_bytes = (size_t)remote + local;
	at = mmap(NULL, rs->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		  0);
	if (at == MAP_FAILED)
		return -1;
	rs->memory = at;
	rs->ring_mr = ibv_reg_mr(pd, at, remote, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	rs->local_mr = ibv_reg_mr(pd, at + remote, local, IBV_ACCESS_LOCAL_WRITE);
	if (!rs->ring_mr || !rs->local_mr)
		return -1;
	rx->ring = at;
	rs->io.table = (struct rs_wire_mapping *)(void *)(at + rx->bytes);
	rx->slots = at + remote;
	tx->buffer = rx->slots + pages(slots);
	rx->slots_lkey = tx->lkey = rs->local_mr->lkey;
	return 0;
}

static int post_all_slots(struct rsocket *rs)
{
	struct rs_rx *rx = &rs->rx;

	rx->idle = calloc(rx->n_slots, sizeof(*rx->idle));
	rx->wrs = calloc(rx->n_slots, sizeof(*rx->wrs));
	rx->sges = calloc(rx->n_slots, sizeof(*rx->sges));
	if (!rx->idle || !rx->wrs || !rx->sges)
		return RS_ERROR(ENOMEM);
	for (uint32_t i = 0; i < rx->n_slots; i++)
		rx->idle[rx->n_idle++] = i;
	return rs_post_idle(rs);
}

static int create_queues(struct rsocket *rs, struct rdma_cm_id *id, uint32_t wrs)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = wrs,
			 .max_recv_wr = rs->rx.n_slots,
			 .max_send_sge = 1,
			 .max_recv_sge = 1,
			 .max_inline_data =
			     rs->tx.inline_bytes > INLINE_MIN ? rs->tx.inline_bytes : INLINE_MIN },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_cq *cq;

	rs->completions = ibv_create_comp_channel(id->verbs);
	if (!rs->completions)
		return -1;
	if (fcntl(rs->completions->fd, F_SETFL, O_NONBLOCK) || rs_watch(rs, rs->completions->fd))
		return -1;
	cq = ibv_create_cq(id->verbs, (int)(wrs + rs->rx.n_slots), NULL, rs->completions, 0);
	if (!cq)
		return -1;
	nupa_store_relaxed(&rs->cq, cq);
	attr.send_cq = attr.recv_cq = cq;
	if (rdma_create_qp(id, NULL, &attr))
		return -1;
	rs->qp = id->qp;
	return 0;
}

/* For *id*, whose device is known, from the socket's options.  -1 with errno. */
int rs_create_transport(struct rsocket *rs, struct rdma_cm_id *id)
{
	const struct rs_options *options = &rs->options;
	int sends = clamp(options->sq_size, QUEUE_MIN, QUEUE_MAX), result = 0;

	rs->rx.bytes = pages((size_t)clamp(options->rcvbuf, BUFFER_MIN, BUFFER_MAX));
	rs->tx.bytes = pages((size_t)clamp(options->sndbuf, BUFFER_MIN, BUFFER_MAX));
	rs->rx.slot_bytes = SLOT_BYTES;
	rs->rx.n_slots = (uint32_t)clamp(options->rq_size, QUEUE_MIN, QUEUE_MAX) + RS_CONTROL_MAX;
	rs->tx.wr_free = sends;
	rs->tx.silent_wrs_max = (uint32_t)sends / 4;
	rs->tx.inline_bytes = (uint32_t)clamp(options->inline_bytes, 0, INLINE_MAX);
	rs->io.entries = (uint32_t)clamp(options->iomap_size, 0, UINT16_MAX);
	rs->control_free = RS_CONTROL_MAX;
	pthread_mutex_lock(&rs->progress); /* others may poll the socket meanwhile */
	if (create_queues(rs, id, (uint32_t)sends + RS_CONTROL_MAX) || create_memory(rs, id->pd) ||
	    post_all_slots(rs))
		result = -1;
	pthread_mutex_unlock(&rs->progress);
	return result;
}

static void forget_mappings(struct rsocket *rs)
{
	struct nupa_list *at;

	while ((at = nupa_list_pop(&rs->io.mapped))) {
		struct rs_iomap *map = container_of(at, struct rs_iomap, link);

		ibv_dereg_mr(map->mr);
		free(map);
	}
}

/* All objects of rs_new_id and rs_create_transport, as far as they were created. */
void rs_destroy_transport(struct rsocket *rs)
{
	if (rs->datagrams)
		rs->datagram_ops->destroy(rs);
	if (rs->qp)
		rdma_destroy_qp(rs->id);
	rs->qp = NULL;
	forget_mappings(rs);
	if (rs->ring_mr)
		ibv_dereg_mr(rs->ring_mr);
	if (rs->local_mr)
		ibv_dereg_mr(rs->local_mr);
	rs->ring_mr = rs->local_mr = NULL;
	if (rs->cq)
		ibv_destroy_cq(rs->cq);
	nupa_store_relaxed(&rs->cq, NULL);
	if (rs->completions)
		ibv_destroy_comp_channel(rs->completions);
	rs->completions = NULL;
	if (rs->id)
		rdma_destroy_id(rs->id);
	rs->id = NULL;
	if (rs->events)
		rdma_destroy_event_channel(rs->events);
	rs->events = NULL;
	if (rs->memory)
		munmap(rs->memory, rs->memory_bytes);
	rs->memory = NULL;
	free(rs->rx.idle);
	free(rs->rx.wrs);
	free(rs->rx.sges);
	rs->rx.idle = NULL;
	rs->rx.wrs = NULL;
	rs->rx.sges = NULL;
	rs->rx.n_idle = 0;
	rs->armed = 0;
}

void rs_say_hello(const struct rsocket *rs, struct rs_wire_hello *hello)
{
	*hello = (struct rs_wire_hello){
		.magic = htonl(RS_WIRE_MAGIC),
		.version = htonl(RS_WIRE_VERSION),
		.ring_addr = htobe64((uintptr_t)rs->rx.ring),
		.ring_bytes = htonl(rs->rx.bytes),
		.ring_rkey = htonl(rs->ring_mr->rkey),
		.slots = htonl(rs->rx.n_slots - RS_CONTROL_MAX),
		.slot_bytes = htonl(rs->rx.slot_bytes),
		.table_addr = htobe64((uintptr_t)rs->io.table),
		.table_entries = htonl(rs->io.entries),
	};
}

/* The peer's hello; -1: it is not an rsocket, or of another version. */
int rs_hear_hello(struct rsocket *rs, const void *data, size_t bytes)
{
	struct rs_wire_hello hello;
	struct rs_tx *tx = &rs->tx;
	uint32_t slots;

	if (!data || bytes < sizeof(hello))
		return -1;
	memcpy(&hello, data, sizeof(hello));
	slots = ntohl(hello.slots);
	tx->ring_bytes = ntohl(hello.ring_bytes);
	if (hello.magic != htonl(RS_WIRE_MAGIC) || hello.version != htonl(RS_WIRE_VERSION) ||
	    !tx->ring_bytes || tx->ring_bytes > RS_WIRE_VALUE_MASK || !slots ||
	    slots > RS_WIRE_VALUE_MASK)
		return -1;
	tx->ring_addr = be64toh(hello.ring_addr);
	tx->ring_rkey = ntohl(hello.ring_rkey);
	tx->credit = tx->ring_bytes;
	tx->slots = (int32_t)slots;
	tx->slots_max = (int32_t)slots;
	tx->short_bytes = ntohl(hello.slot_bytes);
	if (tx->short_bytes > SLOT_BYTES)
		tx->short_bytes = SLOT_BYTES;
	rs->io.peer_addr = be64toh(hello.table_addr);
	rs->io.peer_entries = ntohl(hello.table_entries);
	rs->io.peer_rkey = tx->ring_rkey;
	return 0;
}
