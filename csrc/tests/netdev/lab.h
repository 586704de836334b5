/* SPDX-License-Identifier: BSD-3-Clause
 * Pumps for tests: three hosts on a switch, and sockets that stand for TAP devices. */
#ifndef NUPA_TESTS_LAB_H
#define NUPA_TESTS_LAB_H

#include "netdev/frame.h"
#include "netdev/netdev.h"
#include "tests/support/end.h"

#include <pthread.h>

#define LAB_MTU NUPA_NETDEV_MTU_MAX_BYTES
#define LAB_HEADERS (NUPA_VNET_BYTES + ETH_HLEN)
#define LAB_HOSTS 3u
#define LAB_PORTS (2 * LAB_HOSTS)
#define LAB_SIDES (2 * LAB_HOSTS)
/* Among sides; queue 0 has the host's own number. */
#define LAB_QUEUE_1(host) (LAB_HOSTS + (host))
#define LAB_SILENCE_MS 50
#define LAB_WAIT_MS 20000
#define ANY_SEED UINT32_MAX
#define LAB_ROOM_BYTES (4 << 20) /* in the sockets */

/* Three hosts on a switch. */
struct nupa_fabric *lab_fabric_by(const struct nupa_config *config);
struct nupa_fabric *lab_fabric(uint32_t dma_bytes);

struct lab {
	struct nupa_fabric *fabric;
	struct nupa_pump *pump;
	pthread_t thread;
	int side[LAB_SIDES]; /* the host's frames, both ways; -1: it has no such queue here */
	int lost;            /* the host whose interface was the last to vanish */
	int end;             /* the last result of nupa_pump_run */
};

/* The pump's thread: runs it until it is stopped. */
void *lab_run(void *arg);

/* With those sides whose bits are set: hosts, by their queue 0. */
struct lab *lab_open(struct nupa_fabric *fabric, uint32_t sides);
void lab_close(struct lab *lab);

/* A frame of *bytes* in all to that address, with a pattern behind its headers. */
void lab_send_to(const struct lab *lab, uint32_t from, const uint8_t mac[ETH_ALEN], uint32_t bytes,
		 uint32_t seed);
void lab_send(const struct lab *lab, uint32_t from, uint32_t to, uint32_t bytes, uint32_t seed);
void lab_expect(const struct lab *lab, uint32_t to, uint32_t bytes, uint32_t seed);
void lab_expect_silence(const struct lab *lab, uint32_t to);

/* Of the interface of *host*, in whichever process. */
struct nupa_net_counters lab_counters(struct nupa_fabric *fabric, uint32_t host);

#define AWAIT(condition)                                                                           \
	for (uint64_t until_ns = test_now_ns() + WAIT_NS; !(condition);)                           \
	CHECK(test_now_ns() < until_ns)
#define AWAIT_COUNT(fabric, host, counter, n) AWAIT(lab_counters(fabric, host).counter == (n))

#endif
