/* SPDX-License-Identifier: BSD-3-Clause
 * Two fabrics with a wire between them, in this process.  A thread is the network and both keepers:
 * it steers each datagram of QP 1 as keepers do, unless the test takes it away.  Time stands still:
 * timers expire by net_pass and cm_pass alone. */
#ifndef NUPA_TESTS_WIRE_NET_H
#define NUPA_TESTS_WIRE_NET_H

#include "engine/cm/wire/steer.h"
#include "engine/core/engine.h"
#include "tests/support/cm_end.h"

#define NET_KEPT 4096u

struct net_mad {
	uint8_t bytes[NUPA_CM_MAD_BYTES];
	int to;
};

struct net {
	struct nupa_fabric *fabric[2];
	struct cm_side side[2];        /* the program on host 0 of each; host 1 is the other one */
	struct ibv_context *keeper[2]; /* on host 1 */
	struct nupa_engine *engine[2];
	struct nupa_engine_ops ops[2];
	/* How often a datagram arrives; NULL: once.  With the net's mutex. */
	uint32_t (*copies)(struct net *net, int from, const struct nupa_cm_mad *mad);
	uint32_t arg;
	/* Guarded by the mutex. */
	pthread_mutex_t mutex;
	pthread_cond_t change;
	pthread_t thread;
	bool stop, busy;
	struct net_mad waiting[NET_KEPT];
	uint32_t n_waiting, n_taken;
	uint32_t sent[2][32]; /* by attribute */
	uint8_t last[2][32][NUPA_CM_MAD_BYTES];
};

/* The addresses are 192.0.2.1 and 192.0.2.2, or 2001:db8::1 and ::2. */
struct net *net_open(bool ipv6, uint32_t mtu0_bytes, uint32_t mtu1_bytes);
void net_close(struct net *net);
/* So much time passes for both sides. */
void net_pass(struct net *net, uint64_t ns);
/* All that was sent has arrived. */
void net_settle(struct net *net);
uint32_t net_sent(struct net *net, int from, enum nupa_cm_attribute attribute);
/* The last message of a kind that a side sent. */
void net_last(struct net *net, int from, enum nupa_cm_attribute attribute, struct nupa_cm_mad *mad);
/* Gives a side a datagram, as if the network had brought it. */
void net_inject(struct net *net, int to, const uint8_t mad[NUPA_CM_MAD_BYTES]);
/* For `copies`: no datagram arrives. */
uint32_t net_lose_all(struct net *net, int from, const struct nupa_cm_mad *mad);

#endif
