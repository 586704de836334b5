/* SPDX-License-Identifier: BSD-3-Clause
 * Traffic of two kernels, step by step, for tests: both call the same functions; each step ends
 * when the other kernel has done it. */
#ifndef NUPA_TESTS_APART_WORK_H
#define NUPA_TESTS_APART_WORK_H

#include "tests/segment/apart.h"

#define SMALL_BYTES 20u
#define SMALL_MESSAGES 50u /* three laps of the ring */
#define LARGE_BYTES 49152u
#define LARGE_MESSAGES 30u /* three laps of the DMA ring */
#define AT_ONCE 10u

/* One of the two; the socket leads to the other. */
struct kernel {
	struct nupa_fabric *fabric;
	struct end *end;
	int socket, host;
	unsigned int patience_s; /* for one step: then SIGALRM */
};

/* The next step begins. */
void begin_step(const struct kernel *k);
/* Both are here. */
void meet(const struct kernel *k);
/* The next completion, which has this status. */
struct ibv_wc await(struct ibv_cq *cq, enum ibv_wc_status status);
/* Attached and connected, with a region of AT_ONCE * LARGE_BYTES. */
void join(struct kernel *k);
/* Back from that, in order. */
void leave(struct kernel *k);
/* Messages go both ways, AT_ONCE of them unanswered. */
void converse(struct kernel *k, uint32_t bytes, uint32_t messages);
/* WRITE, READ and an atomic. */
void reach_into_memory(struct kernel *k);
/* Host 0 takes a port of host 1 down and up. */
void see_ports(struct kernel *k);
/* Each sees what the other has counted: one lot of small messages at least. */
void see_counters(struct kernel *k);
/* Host 1 listens, host 0 connects, by rdma_cm. */
void connect_by_cm(struct kernel *k);
/* From the network interface of host 0 to that of host 1. */
void pass_frame(struct kernel *k);

#endif
