/* SPDX-License-Identifier: BSD-3-Clause
 * Both sides of rdma_cm for tests: two hosts in one process, each with a context and an event
 * channel.  Short functions take the steps of a connection. */
#ifndef NUPA_TESTS_CM_END_H
#define NUPA_TESTS_CM_END_H

#include "librdmacm/internal.h"
#include "tests/support/runner.h"

struct cm_side {
	struct ibv_context *context;
	struct rdma_event_channel *channel;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
};

struct cm_pair {
	struct nupa_fabric *fabric;
	struct cm_side side[2]; /* of host 0 and host 1 */
};

struct cm_side cm_side_open(struct nupa_fabric *fabric, int host);
void cm_side_close(struct cm_side *side);
struct cm_pair cm_pair_open(void);
void cm_pair_close(struct cm_pair *pair);

/* "10.0.0.1", "::1", "" (any, IPv4) or "::" with a port. */
struct sockaddr *cm_addr(struct sockaddr_storage *storage, const char *text, uint16_t port);

struct rdma_cm_id *cm_id(struct cm_side *side, enum rdma_port_space ps);
/* Bound there: 0 or an errno. */
int cm_bind(struct rdma_cm_id *id, const char *addr, uint16_t port);
/* Bound and listening, on a port of the library's choice. */
struct rdma_cm_id *cm_listener(struct cm_side *side, enum rdma_port_space ps, const char *addr);
uint16_t cm_port(struct rdma_cm_id *id);

/* The next event, awaited: not acknowledged. */
struct rdma_cm_event *cm_next(struct rdma_event_channel *channel);
/* The same, of this type with this status; for *id*, unless that is NULL. */
struct rdma_cm_event *cm_expect(struct rdma_event_channel *channel, struct rdma_cm_id *id,
				enum rdma_cm_event_type type, int status);
/* And acknowledged. */
void cm_expect_ack(struct rdma_event_channel *channel, struct rdma_cm_id *id,
		   enum rdma_cm_event_type type, int status);
/* None waits. */
void cm_expect_none(struct rdma_event_channel *channel);

/* Up to ROUTE_RESOLVED. */
void cm_resolve(struct cm_side *side, struct rdma_cm_id *id, const char *addr, uint16_t port);
void cm_make_qp(struct cm_side *side, struct rdma_cm_id *id);
/* With QPs, from CONNECT_REQUEST to ESTABLISHED on both sides; *server is the new id. */
void cm_connect(struct cm_pair *pair, struct rdma_cm_id *listener, struct rdma_cm_id *client,
		struct rdma_cm_id **server);
/* With its QP. */
void cm_destroy(struct rdma_cm_id *id);
enum ibv_qp_state cm_qp_state(struct rdma_cm_id *id);

/* IBTA 12.7.17 Remote CM Response Timeout, as everything here has it. */
#define CM_RESPONSE_NS (UINT64_C(4096) << 20)
/* So much time passes for connection management of this side; its timers have run when this
 * returns. */
void cm_pass(struct cm_side *side, uint64_t ns);

#endif
