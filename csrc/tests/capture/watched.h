/* SPDX-License-Identifier: BSD-3-Clause
 * Helpers of tests of watches: a watch, the packets it has read, and two attachments that record.
 */
#ifndef NUPA_TESTS_WATCHED_H
#define NUPA_TESTS_WATCHED_H

#include "tests/support/recorder.h"
#include "capture/watch.h"

struct seen {
	struct nupa_watch_packet head;
	uint8_t data[256]; /* the first ones */
};

/* The result of watched_read. */
extern struct seen packets[4096];
extern uint32_t n_packets;

struct nupa_watch *watched_open(struct nupa_fabric *fabric, uint32_t levels);
/* Reads all that there is, in order of time. */
void watched_read(struct nupa_watch *watch);
/* Of a transport packet. */
uint32_t watched_opcode(const struct seen *seen);
uint32_t watched_psn(const struct seen *seen);

/* Two attachments that record what they are told to, and a watch of them. */
struct two {
	struct nupa_fabric *fabric;
	struct recorder a, b;
	struct nupa_watch *watch;
};

struct two two_open(uint32_t levels);
void two_close(struct two *two);
struct nupa_watch_counts two_counts(const struct two *two);
/* A SEND with this PSN. */
void put_send(struct recorder *from, const struct recorder *to, uint32_t psn, uint32_t bytes);
/* A frame; all are alike but for their first bytes. */
void put_frame(struct recorder *from, uint32_t to_host, uint8_t first, uint8_t gso_type,
	       uint8_t flags, uint64_t time_ns);

#endif
