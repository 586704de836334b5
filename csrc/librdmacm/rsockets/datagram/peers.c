/* SPDX-License-Identifier: BSD-3-Clause
 * Destinations of datagrams.  A bound socket answers service ID requests with its QP's number.  A
 * sender asks once, or learns the number from a received datagram.  It asks again when no datagram
 * of the peer has come for a while: another process may have its port by then. */
#include "librdmacm/rsockets/datagram/datagram.h"

#include <errno.h>
#include <stdlib.h>

#define RESOLVE_MS 2000
#define FRESH_NS (INT64_C(1000) * RS_NS_PER_MS)
#define PEERS_MAX 1024u

void rs_address_key(const struct sockaddr *addr, struct in6_addr *key, uint16_t *port)
{
	if (addr->sa_family == AF_INET) {
		const struct sockaddr_in *sin = (const void *)addr;

		memset(key, 0, sizeof(*key));
		key->s6_addr[10] = key->s6_addr[11] = 0xff;
		memcpy(&key->s6_addr[12], &sin->sin_addr, sizeof(sin->sin_addr));
		*port = sin->sin_port;
	} else {
		const struct sockaddr_in6 *sin6 = (const void *)addr;

		*key = sin6->sin6_addr;
		*port = sin6->sin6_port;
	}
}

void rs_key_address(const struct in6_addr *key, uint16_t port, int family,
		    struct sockaddr_storage *addr)
{
	memset(addr, 0, sizeof(*addr));
	addr->ss_family = (sa_family_t)family;
	if (family == AF_INET) {
		struct sockaddr_in *sin = (void *)addr;

		memcpy(&sin->sin_addr, &key->s6_addr[12], sizeof(sin->sin_addr));
		sin->sin_port = port;
	} else {
		struct sockaddr_in6 *sin6 = (void *)addr;

		sin6->sin6_addr = *key;
		sin6->sin6_port = port;
	}
}

static struct rs_peer *find(struct rs_datagrams *d, const struct in6_addr *key, uint16_t port)
{
	for (struct nupa_list *at = d->peers.next; at != &d->peers; at = at->next) {
		struct rs_peer *peer = container_of(at, struct rs_peer, link);

		if (peer->port == port && !memcmp(&peer->addr, key, sizeof(*key)))
			return peer;
	}
	return NULL;
}

/* One that was confirmed recently, or NULL. */
struct rs_peer *rs_find_peer(struct rsocket *rs, const struct in6_addr *key, uint16_t port)
{
	struct rs_peer *peer = find(rs->datagrams, key, port);

	return peer && rs_now_ns() - peer->known_ns < FRESH_NS ? peer : NULL;
}

static void forget(struct rs_datagrams *d, struct rs_peer *peer)
{
	nupa_list_del(&peer->link);
	d->n_peers--;
	if (peer->ah)
		ibv_destroy_ah(peer->ah);
	free(peer);
}

void rs_forget_peers(struct rsocket *rs)
{
	struct rs_datagrams *d = rs->datagrams;

	while (!nupa_list_empty(&d->peers))
		forget(d, container_of(d->peers.next, struct rs_peer, link));
}

/* Keeps the facts about a peer, and takes over *ah*; the oldest entry makes room. */
static void keep(struct rs_datagrams *d, const struct rs_peer *known)
{
	struct rs_peer *peer = find(d, &known->addr, known->port);

	if (peer)
		forget(d, peer);
	else if (d->n_peers == PEERS_MAX)
		forget(d, container_of(d->peers.next, struct rs_peer, link));
	peer = malloc(sizeof(*peer));
	if (!peer) { /* it will be looked up again */
		ibv_destroy_ah(known->ah);
		return;
	}
	*peer = *known;
	nupa_list_add(&d->peers, &peer->link);
	d->n_peers++;
}

/* From a datagram that arrived.  Without memory for it the peer is looked up when needed. */
void rs_learn_peer(struct rsocket *rs, struct ibv_wc *wc, void *grh,
		   const struct rs_wire_datagram *header)
{
	struct rs_datagrams *d = rs->datagrams;
	struct rs_peer known = { .port = header->port,
				 .qpn = wc->src_qp,
				 .qkey = RDMA_UDP_QKEY,
				 .known_ns = rs_now_ns() };
	struct rs_peer *peer;

	memcpy(&known.addr, header->from, sizeof(known.addr));
	memcpy(&known.source, header->to, sizeof(known.source));
	peer = find(d, &known.addr, known.port);
	if (peer && peer->qpn == known.qpn) {
		peer->known_ns = known.known_ns;
		return;
	}
	known.ah = ibv_create_ah_from_wc(d->pd, wc, grh, 1);
	if (known.ah)
		keep(d, &known);
}

static int look_up(struct rdma_cm_id *id, struct rsocket *rs, struct sockaddr_storage *to,
		   struct rs_peer *known)
{
	struct rdma_conn_param param = { .qp_num = rs->datagrams->qp->qp_num };
	const struct rdma_ud_param *ud;
	struct ibv_ah_attr attr;
	uint16_t port;

	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)to, RESOLVE_MS) ||
	    rdma_resolve_route(id, RESOLVE_MS) || rdma_connect(id, &param))
		return -1;
	if (!id->event || id->event->event != RDMA_CM_EVENT_ESTABLISHED)
		return RS_ERROR(ECONNREFUSED);
	ud = &id->event->param.ud;
	attr = ud->ah_attr;
	rs_address_key(rdma_get_local_addr(id), &known->source, &port);
	known->qpn = ud->qp_num;
	known->qkey = ud->qkey;
	known->ah = ibv_create_ah(rs->datagrams->pd, &attr);
	return known->ah ? 0 : -1;
}

/* Looks up the socket that has *addr*. -1 with errno: ECONNREFUSED when none does. */
int rs_resolve_peer(struct rsocket *rs, const struct sockaddr *addr)
{
	struct sockaddr_storage to = { 0 };
	struct rs_peer known = { 0 };
	struct rdma_cm_id *id;
	int result, code;

	memcpy(&to, addr, rs_address_bytes(addr->sa_family));
	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP))
		return -1;
	result = look_up(id, rs, &to, &known);
	code = errno;
	rdma_destroy_id(id);
	if (result)
		return RS_ERROR(code);
	rs_address_key(addr, &known.addr, &known.port);
	known.known_ns = rs_now_ns();
	pthread_mutex_lock(&rs->progress);
	keep(rs->datagrams, &known);
	pthread_mutex_unlock(&rs->progress);
	return 0;
}

static void answer_lookups(struct rsocket *rs)
{
	struct rdma_conn_param param = { .qp_num = rs->datagrams->qp->qp_num };
	struct rdma_cm_event *event;

	pthread_mutex_lock(&rs->control);
	while (nupa_load_acquire(&rs->serve) && rs_fd_readable(rs->events->fd) &&
	       rdma_get_cm_event(rs->events, &event) == 0) {
		bool is_request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
		struct rdma_cm_id *id = event->id;

		rdma_ack_cm_event(event);
		if (!is_request)
			continue;
		/* If it fails, the requester is told that no socket is there, which is the right
		 * answer. */
		(void)rdma_accept(id, &param);
		rdma_destroy_id(id);
	}
	pthread_mutex_unlock(&rs->control);
}

/* Under `control`, once the socket is bound.  -1 with errno. */
int rs_serve_datagrams(struct rsocket *rs)
{
	if (rdma_listen(rs->id, SOMAXCONN))
		return -1;
	rs_unwatch(rs, rs->events->fd);
	return rs_serve(rs, rs->events->fd, answer_lookups);
}
