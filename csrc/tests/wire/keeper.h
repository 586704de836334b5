/* SPDX-License-Identifier: BSD-3-Clause
 * Two fabrics in this process, joined by a wire over loopback, each with a keeper in a thread. */
#ifndef NUPA_TESTS_WIRE_KEEPER_H
#define NUPA_TESTS_WIRE_KEEPER_H

#include "segment/slot/wire.h"
#include "tests/support/end.h"

#include <netinet/in.h>
#include <pthread.h>

#define WIRE_HOST 1u /* of test_fabric */
#define KEEPER_JOINS_MAX 8u
#define WIRED_PATH_BYTES 108u /* sun_path of unix(7) */

/* Of RC (IBTA 9.2). */
#define BTH_WRITE_ONLY_IMM 0x0b
#define BTH_READ_REQUEST 0x0c
#define BTH_READ_RESPONSE 0x0d
#define BTH_READ_RESPONSE_LAST 0x0f
#define BTH_ACK 0x11
#define BTH_ATOMIC_ACK 0x12
#define BTH_ACKREQ 0x80

struct keeper {
	struct nupa_fabric *fabric;
	struct nupa_engine *engine; /* its attachment to the host of the wire */
	uint32_t index;
	uint8_t local[16]; /* a GID */
	enum nupa_wire_medium medium;
	int listener, wake;
	int joined[KEEPER_JOINS_MAX];
	uint32_t n_joined;
	char path[WIRED_PATH_BYTES];
	pthread_t thread;
};

struct wired {
	struct keeper a, b;
	struct end *end_a, *end_b;
	struct lossy *lossy; /* NULL: they have sockets */
};

/* The network between keepers whose medium is frames: how many of 10,000 packets it loses, repeats,
 * delays behind the next one, and changes. */
struct lossy {
	uint32_t lose, repeat, delay, change;
	/* Packets that it loses besides, of those *from* this end; NULL: none. */
	bool (*loses)(struct lossy *lossy, uint32_t from, const uint8_t *bth);
	uint32_t n_marks; /* of such a function */
	uint64_t random;  /* its state */
	struct lossy_way {
		uint32_t next_psn, asked_psn;
		bool begun, asked;
	} ways[2]; /* requests from each end */
	struct keeper *keepers[2];
	int wake;
	pthread_t thread;
};

/* A fabric whose host 1 is reached at *remote*, from *local*. */
void keeper_open(struct keeper *keeper, const char *local, const char *remote,
		 enum nupa_wire_medium medium, uint32_t mtu_bytes);
void keeper_close(struct keeper *keeper);
struct nupa_wire_info keeper_info(const struct keeper *keeper);
/* An address of loopback that no other test has at this time: pids have 22 bits. */
void wired_address(char address[INET_ADDRSTRLEN], uint32_t side);

/* For `loses`: acknowledgements that nothing has asked for.  A responder may send only what it is
 * asked for, and what comes again: rdma_rxe does. */
bool lossy_unasked(struct lossy *lossy, uint32_t from, const uint8_t *bth);

/* A socket's name, in a new folder that wired_path_remove() deletes once the socket is gone. */
void wired_path(char path[WIRED_PATH_BYTES]);
void wired_path_remove(const char path[WIRED_PATH_BYTES]);
/* The fabrics, and an end on host 0 of each. */
void wired_open(struct wired *wired, const struct end_options *options, uint32_t mtu_bytes);
/* The same with this network in between. */
void wired_open_lossy(struct wired *wired, const struct end_options *options, uint32_t mtu_bytes,
		      struct lossy *lossy);
/* The same over IPv6, in a network namespace that this process enters.  False: it may not, and the
 * case is skipped. */
bool wired_open_ipv6(struct wired *wired, const struct end_options *options, uint32_t mtu_bytes);
/* An unconnected UDP socket of this address, whose packets have the identification 0. */
int wired_socket(const uint8_t gid[16], uint16_t port);
void wired_close(struct wired *wired);

#endif
