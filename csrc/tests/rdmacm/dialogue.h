/* SPDX-License-Identifier: BSD-3-Clause
 * Two ids that meet over a wire: a client of side 0, a listener of side 1 and its server. */
#ifndef NUPA_TEST_DIALOGUE_H
#define NUPA_TEST_DIALOGUE_H

#include "tests/rdmacm/wire_net.h"

#include <arpa/inet.h>

struct dialogue {
	struct net *net;
	struct rdma_cm_id *listener, *client, *server; /* of sides 1, 0 and 1 */
};

/* A listener at address *at*, and a client whose route to *to* is resolved; NULL: to side 1's. */
struct dialogue dialogue_open(enum rdma_port_space ps, bool ipv6, const char *at, const char *to);
void dialogue_close(struct dialogue *s);
void dialogue_far_text(bool ipv6, int side, char text[INET6_ADDRSTRLEN]);
/* The channels of the client's events, and of the server's. */
struct rdma_event_channel *dialogue_active(const struct dialogue *s);
struct rdma_event_channel *dialogue_passive(const struct dialogue *s);
/* Lets time pass for both. */
void dialogue_pass(const struct dialogue *s, uint64_t ns);
/* rdma_connect(3) by the client, and the server's request. */
void dialogue_ask(struct dialogue *s, const char *data);
void dialogue_hear(struct dialogue *s);
/* At both ends, once the server has accepted. */
void dialogue_expect_established(const struct dialogue *s);
/* All of these, and rdma_accept(3). */
void dialogue_establish(struct dialogue *s);
/* rdma_disconnect(3) by the client. */
void dialogue_end(struct dialogue *s);

#endif
