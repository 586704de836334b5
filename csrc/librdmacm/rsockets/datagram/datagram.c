/* SPDX-License-Identifier: BSD-3-Clause
 * SOCK_DGRAM: each datagram is one UD message of a path MTU at most.  As with UDP, it may be lost
 * where no socket is bound or no receive is left. */
#include "librdmacm/rsockets/datagram/datagram.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ARRIVAL_BYTES 4160u /* GRH and MTU, in whole cache lines */
#define DEPARTURE_BYTES 4096u
#define COMPLETIONS_AT_ONCE 16
#define MEMORY_BYTES ((size_t)RS_ARRIVALS * ARRIVAL_BYTES + (size_t)RS_DEPARTURES * DEPARTURE_BYTES)

static int post_arrival(struct rs_datagrams *d, uint32_t slot)
{
	struct ibv_sge sge = { (uintptr_t)d->arrivals + (size_t)slot * ARRIVAL_BYTES, ARRIVAL_BYTES,
			       d->mr->lkey };
	struct ibv_recv_wr *bad,
	    wr = { .wr_id = rs_wr_id(RS_WR_RECEIVE, 0, slot), .sg_list = &sge, .num_sge = 1 };

	return ibv_post_recv(d->qp, &wr, &bad);
}

/* The first partition of this host. */
static uint16_t pkey_index_of(struct ibv_context *verbs)
{
	uint16_t pkey;

	for (int index = 0; !ibv_query_pkey(verbs, 1, index, &pkey); index++)
		if (pkey)
			return (uint16_t)index;
	return 0;
}

static int make_ready(struct ibv_qp *qp)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT,
				    .pkey_index = pkey_index_of(qp->context),
				    .port_num = 1,
				    .qkey = RDMA_UDP_QKEY };
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS };

	errno =
	    ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY);
	if (!errno)
		errno = ibv_modify_qp(qp, &rtr, IBV_QP_STATE);
	if (!errno)
		errno = ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN);
	return errno ? -1 : 0;
}

static int create_queues(struct rsocket *rs, struct ibv_context *verbs)
{
	struct rs_datagrams *d = rs->datagrams;
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = RS_DEPARTURES,
			 .max_recv_wr = RS_ARRIVALS,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_UD,
	};

	d->pd = ibv_alloc_pd(verbs);
	rs->completions = ibv_create_comp_channel(verbs);
	if (!d->pd || !rs->completions || fcntl(rs->completions->fd, F_SETFL, O_NONBLOCK) ||
	    rs_watch(rs, rs->completions->fd))
		return -1;
	rs->cq = ibv_create_cq(verbs, (int)(RS_DEPARTURES + RS_ARRIVALS), NULL, rs->completions, 0);
	if (!rs->cq)
		return -1;
	attr.send_cq = attr.recv_cq = rs->cq;
	d->qp = ibv_create_qp(d->pd, &attr);
	return d->qp ? make_ready(d->qp) : -1;
}

static int create_slots(struct rs_datagrams *d)
{
	uint8_t *memory =
	    mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return -1;
	d->arrivals = memory;
	d->departures = memory + (size_t)RS_ARRIVALS * ARRIVAL_BYTES;
	d->mr = ibv_reg_mr(d->pd, memory, MEMORY_BYTES, IBV_ACCESS_LOCAL_WRITE);
	if (!d->mr)
		return -1;
	for (uint32_t i = 0; i < RS_DEPARTURES; i++)
		d->idle[d->n_idle++] = i;
	for (uint32_t i = 0; i < RS_ARRIVALS; i++) {
		errno = post_arrival(d, i);
		if (errno)
			return -1;
	}
	return 0;
}

static void destroy(struct rsocket *rs)
{
	struct rs_datagrams *d = rs->datagrams;

	rs_forget_peers(rs);
	if (d->qp)
		ibv_destroy_qp(d->qp);
	if (d->mr)
		ibv_dereg_mr(d->mr);
	if (rs->cq)
		ibv_destroy_cq(rs->cq);
	nupa_store_relaxed(&rs->cq, NULL);
	if (d->pd)
		ibv_dealloc_pd(d->pd);
	if (d->arrivals)
		munmap(d->arrivals, MEMORY_BYTES);
	free(d);
	rs->datagrams = NULL;
}

static bool is_from_connected(struct rs_datagrams *d, const struct rs_arrival *arrival)
{
	struct in6_addr key;
	uint16_t port;

	if (!d->is_connected)
		return true;
	rs_address_key((struct sockaddr *)&d->connected, &key, &port);
	return arrival->port == port && !memcmp(&key, &arrival->from, sizeof(key));
}

/* False: it is not for the program. */
static bool arrived(struct rsocket *rs, struct ibv_wc *wc, uint32_t slot)
{
	struct rs_datagrams *d = rs->datagrams;
	uint8_t *at = d->arrivals + (size_t)slot * ARRIVAL_BYTES;
	struct rs_wire_datagram header;
	struct rs_arrival *arrival = &d->queue[(d->first + d->count) % RS_ARRIVALS];

	if (wc->byte_len < RS_GRH_BYTES + sizeof(header))
		return false;
	memcpy(&header, at + RS_GRH_BYTES, sizeof(header));
	if (header.magic != htonl(RS_WIRE_MAGIC))
		return false;
	arrival->slot = slot;
	arrival->bytes = wc->byte_len - RS_GRH_BYTES - (uint32_t)sizeof(header);
	arrival->port = header.port;
	memcpy(&arrival->from, header.from, sizeof(arrival->from));
	if (!is_from_connected(d, arrival))
		return false;
	rs_learn_peer(rs, wc, at, &header);
	d->count++;
	return true;
}

/* Takes completions.  Under `progress`. */
static int drain(struct rsocket *rs)
{
	struct rs_datagrams *d = rs->datagrams;
	struct ibv_wc wcs[COMPLETIONS_AT_ONCE];
	int n, all = 0;

	do {
		n = ibv_poll_cq(rs->cq, COMPLETIONS_AT_ONCE, wcs);
		for (int i = 0; i < n; i++) {
			uint32_t slot = (uint32_t)wcs[i].wr_id & 0xffff;

			if (wcs[i].wr_id == rs_wr_id(RS_WR_DATA, 0, slot))
				d->idle[d->n_idle++] = slot;
			else if (wcs[i].status == IBV_WC_SUCCESS && !arrived(rs, &wcs[i], slot))
				post_arrival(d, slot);
		}
		all += n;
	} while (n == COMPLETIONS_AT_ONCE);
	if (all)
		rs_notify(rs);
	return all;
}

short rs_state_of_datagrams(struct rsocket *rs)
{
	struct rs_datagrams *d = rs->datagrams;
	short events = 0;

	pthread_mutex_lock(&rs->progress);
	if (d->count || rs->read_shut)
		events |= POLLIN | POLLRDNORM;
	if (d->n_idle)
		events |= POLLOUT | POLLWRNORM;
	pthread_mutex_unlock(&rs->progress);
	return events;
}

static bool can_read(struct rsocket *rs)
{
	return rs_state_of_datagrams(rs) & POLLIN;
}

static bool can_write(struct rsocket *rs)
{
	return rs_state_of_datagrams(rs) & POLLOUT;
}

int rs_connect_datagrams(struct rsocket *rs, const struct sockaddr *addr)
{
	int result;

	pthread_mutex_lock(&rs->control);
	result = rs_bind_anywhere(rs);
	pthread_mutex_unlock(&rs->control);
	if (result)
		return -1;
	pthread_mutex_lock(&rs->progress);
	memcpy(&rs->datagrams->connected, addr, rs_address_bytes(rs->domain));
	rs->datagrams->is_connected = true;
	pthread_mutex_unlock(&rs->progress);
	return 0;
}

const struct sockaddr *rs_datagram_peer(struct rsocket *rs)
{
	return rs->datagrams->is_connected ? (struct sockaddr *)&rs->datagrams->connected : NULL;
}

static void write_header(struct rsocket *rs, const struct rs_peer *peer,
			 struct rs_wire_datagram *header)
{
	static const struct in6_addr any = IN6ADDR_ANY_INIT;
	struct in6_addr own;
	uint16_t port;

	rs_address_key(rdma_get_local_addr(rs->id), &own, &port);
	if (!memcmp(&own, &any, sizeof(any)) || !memcmp(&own.s6_addr[12], &any, 4))
		own = peer->source; /* bound to no address: the one on the way to the peer */
	*header = (struct rs_wire_datagram){ .magic = htonl(RS_WIRE_MAGIC), .port = port };
	memcpy(header->from, &own, sizeof(header->from));
	memcpy(header->to, &peer->addr, sizeof(header->to));
}

/* 1: sent; 0: no room; -1 with errno ENOENT: the peer has to be looked up. */
static int send_now(struct rsocket *rs, struct rs_pieces *from, const struct in6_addr *key,
		    uint16_t port)
{
	struct rs_datagrams *d = rs->datagrams;
	struct rs_wire_datagram header;
	struct rs_peer *peer = rs_find_peer(rs, key, port);
	uint32_t slot, bytes = (uint32_t)(sizeof(header) + from->left);
	struct ibv_sge sge;
	struct ibv_send_wr *bad, wr = { .sg_list = &sge,
					.num_sge = 1,
					.opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_SIGNALED };
	uint8_t *at;

	if (!peer)
		return RS_ERROR(ENOENT);
	drain(rs);
	if (!d->n_idle)
		return 0;
	slot = d->idle[--d->n_idle];
	at = d->departures + (size_t)slot * DEPARTURE_BYTES;
	write_header(rs, peer, &header);
	memcpy(at, &header, sizeof(header));
	rs_copy_out(from, at + sizeof(header), from->left);
	sge = (struct ibv_sge){ (uintptr_t)at, bytes, d->mr->lkey };
	wr.wr_id = rs_wr_id(RS_WR_DATA, 0, slot);
	wr.wr.ud.ah = peer->ah;
	wr.wr.ud.remote_qpn = peer->qpn;
	wr.wr.ud.remote_qkey = peer->qkey;
	errno = ibv_post_send(d->qp, &wr, &bad);
	if (errno)
		d->idle[d->n_idle++] = slot;
	return errno ? -1 : 1;
}

static int prepare(struct rsocket *rs, const struct rs_pieces *from, const struct sockaddr **to)
{
	int result;

	if (!*to)
		*to = rs_datagram_peer(rs);
	if (!*to)
		return EDESTADDRREQ;
	if (nupa_load_acquire(&rs->write_shut))
		return EPIPE;
	if (from->left > RS_DATAGRAM_BYTES)
		return EMSGSIZE;
	pthread_mutex_lock(&rs->control);
	result = rs_bind_anywhere(rs) ? errno : 0;
	pthread_mutex_unlock(&rs->control);
	return result;
}

/* The datagram's bytes; -1 with errno: EDESTADDRREQ, EMSGSIZE, EAGAIN. A datagram to an unused
 * address is lost. */
ssize_t rs_datagram_send(struct rsocket *rs, struct rs_pieces *from, int flags,
			 const struct sockaddr *to)
{
	bool may_block = !(flags & MSG_DONTWAIT) && !nupa_load_relaxed(&rs->nonblocking);
	int64_t deadline_ns = rs_deadline(rs->options.send_ns);
	ssize_t bytes = (ssize_t)from->left;
	int code = prepare(rs, from, &to);
	struct in6_addr key;
	uint16_t port;

	if (code)
		return RS_ERROR(code);
	rs_address_key(to, &key, &port);
	for (;;) {
		int sent;

		pthread_mutex_lock(&rs->progress);
		sent = send_now(rs, from, &key, port);
		code = errno;
		pthread_mutex_unlock(&rs->progress);
		if (sent > 0)
			return bytes;
		if (sent < 0 && code != ENOENT)
			return RS_ERROR(code);
		if (sent < 0 && rs_resolve_peer(rs, to))
			return bytes; /* into the void */
		if (sent == 0 && !may_block)
			return RS_ERROR(EAGAIN);
		if (sent == 0 && rs_wait(rs, can_write, deadline_ns))
			return -1;
	}
}

/* Under `progress`; -1: there is none. */
static ssize_t receive_now(struct rsocket *rs, struct rs_pieces *to, int flags,
			   struct sockaddr_storage *from, bool *cut)
{
	struct rs_datagrams *d = rs->datagrams;
	const struct rs_arrival *arrival = &d->queue[d->first];
	const uint8_t *at;
	size_t bytes;

	drain(rs);
	if (!d->count)
		return -1;
	at = d->arrivals + (size_t)arrival->slot * ARRIVAL_BYTES + RS_GRH_BYTES +
	     sizeof(struct rs_wire_datagram);
	bytes = arrival->bytes < to->left ? arrival->bytes : to->left;
	*cut = bytes < arrival->bytes;
	rs_copy_in(to, at, bytes);
	rs_key_address(&arrival->from, arrival->port, rs->domain, from);
	if (flags & MSG_TRUNC)
		bytes = arrival->bytes;
	if (!(flags & MSG_PEEK)) {
		post_arrival(d, arrival->slot);
		d->first = (d->first + 1) % RS_ARRIVALS;
		d->count--;
	}
	return (ssize_t)bytes;
}

/* A datagram's bytes, the first of them if *to* is shorter; -1 with errno EAGAIN, EINTR, EBADF. */
ssize_t rs_datagram_receive(struct rsocket *rs, struct rs_pieces *to, int flags,
			    struct sockaddr_storage *from, bool *cut)
{
	bool may_block = !(flags & MSG_DONTWAIT) && !nupa_load_relaxed(&rs->nonblocking);
	int64_t deadline_ns = rs_deadline(rs->options.receive_ns);

	for (;;) {
		ssize_t bytes;

		pthread_mutex_lock(&rs->progress);
		bytes = receive_now(rs, to, flags, from, cut);
		pthread_mutex_unlock(&rs->progress);
		if (bytes >= 0)
			return bytes;
		if (nupa_load_acquire(&rs->read_shut))
			return 0;
		if (!may_block)
			return RS_ERROR(EAGAIN);
		if (rs_wait(rs, can_read, deadline_ns))
			return -1;
	}
}

static const struct rs_datagram_ops ops = {
	.drain = drain,
	.bound = rs_serve_datagrams,
	.destroy = destroy,
};

/* -1 with errno; rs_put removes the objects created so far. */
int rs_create_datagrams(struct rsocket *rs)
{
	struct ibv_context **devices;
	struct ibv_context *verbs;
	int n = 0;

	devices = rdma_get_devices(&n);
	verbs = devices && n > 0 ? devices[0] : NULL; /* it stays open */
	rdma_free_devices(devices);
	if (!verbs)
		return RS_ERROR(ENODEV);
	rs->datagram_ops = &ops;
	rs->datagrams = calloc(1, sizeof(*rs->datagrams));
	if (!rs->datagrams)
		return RS_ERROR(ENOMEM);
	nupa_list_init(&rs->datagrams->peers);
	if (create_queues(rs, verbs) || create_slots(rs->datagrams))
		return -1;
	return 0;
}
