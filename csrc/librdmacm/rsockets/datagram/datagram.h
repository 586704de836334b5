/* SPDX-License-Identifier: BSD-3-Clause
 * Datagrams: one UD queue pair for each socket.  A peer's number comes from a look-up by the
 * connection manager, or from its datagrams. */
#ifndef NUPA_RS_DATAGRAM_H
#define NUPA_RS_DATAGRAM_H

#include "librdmacm/rsockets/internal.h"

#define RS_GRH_BYTES 40u
#define RS_DATAGRAM_BYTES (4096u - (uint32_t)sizeof(struct rs_wire_datagram))
#define RS_ARRIVALS 256u
#define RS_DEPARTURES 64u

struct rs_peer {
	struct nupa_list link;
	struct in6_addr addr, source; /* its own, and this socket's as the peer knows it */
	uint16_t port;                /* big endian */
	struct ibv_ah *ah;
	uint32_t qpn, qkey;
	int64_t known_ns; /* when this was last confirmed */
};

struct rs_arrival {
	uint32_t slot, bytes; /* of the program's */
	struct in6_addr from;
	uint16_t port;
};

/* Everything is under `progress`. */
struct rs_datagrams {
	struct ibv_pd *pd;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *arrivals, *departures; /* memory: slots for each */
	struct rs_arrival queue[RS_ARRIVALS];
	uint32_t first, count;
	uint32_t idle[RS_DEPARTURES], n_idle;
	struct nupa_list peers;
	uint32_t n_peers;
	struct sockaddr_storage connected;
	bool is_connected;
};

/* For the calls. */
int rs_create_datagrams(struct rsocket *rs);
short rs_state_of_datagrams(struct rsocket *rs);
ssize_t rs_datagram_send(struct rsocket *rs, struct rs_pieces *from, int flags,
			 const struct sockaddr *to);
ssize_t rs_datagram_receive(struct rsocket *rs, struct rs_pieces *to, int flags,
			    struct sockaddr_storage *from, bool *cut);

int rs_connect_datagrams(struct rsocket *rs, const struct sockaddr *addr);
const struct sockaddr *rs_datagram_peer(struct rsocket *rs);

/* peers.c: destinations. */
int rs_serve_datagrams(struct rsocket *rs);
void rs_address_key(const struct sockaddr *addr, struct in6_addr *key, uint16_t *port);
void rs_key_address(const struct in6_addr *key, uint16_t port, int family,
		    struct sockaddr_storage *addr);
void rs_learn_peer(struct rsocket *rs, struct ibv_wc *wc, void *grh,
		   const struct rs_wire_datagram *header);
struct rs_peer *rs_find_peer(struct rsocket *rs, const struct in6_addr *key, uint16_t port);
int rs_resolve_peer(struct rsocket *rs, const struct sockaddr *addr);
void rs_forget_peers(struct rsocket *rs);

#endif
