/* SPDX-License-Identifier: BSD-3-Clause
 * An attachment that records what a test tells it to: for tests of watches. */
#ifndef NUPA_TESTS_RECORDER_H
#define NUPA_TESTS_RECORDER_H

#include "tests/support/runner.h"
#include "segment/segment.h"
#include "engine/trace/trace.h"

struct recorder {
	struct nupa_fabric *fabric;
	uint32_t slot, host;
	struct nupa_trace_header *header;
	uint32_t sequence;
};

/* A slot of this process on a host, with a ring that is backed. */
struct recorder recorder_open(struct nupa_fabric *fabric, uint32_t host);
/* Gives the slot back. */
void recorder_close(struct recorder *recorder);
/* Writes one record as csrc/engine/trace/trace.c would, with the time of now unless time_ns is set.
 * *record: the kind, flags, peer and transfer of its head. */
void recorder_put(struct recorder *recorder, struct nupa_trace_record record, uint64_t time_ns,
		  const void *body, size_t body_bytes, const void *data, uint32_t data_bytes);
/* A message between QPs of two recorders with all of its data. */
void recorder_message(struct recorder *from, const struct recorder *to, struct nupa_msg msg,
		      uint8_t qp_type, const void *data, uint32_t data_bytes);

#endif
