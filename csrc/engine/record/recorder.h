/* SPDX-License-Identifier: BSD-3-Clause
 * The recorder's own state, for the files of this folder. */
#ifndef NUPA_RECORDER_H
#define NUPA_RECORDER_H

#include "engine/record/record.h"

#define NUPA_RECORD_BEGIN_EVERY 8u /* R7 */

struct nupa_recorder {
	struct nupa_record *at, *end; /* of the tail; NULL: the recording has ended (CUT) */
	struct nupa_record_header *header;
	uint64_t posting_ticks; /* 0: no call posts */
	uint64_t last_ticks;    /* the last reading in a record */
	uint64_t clock_ticks;   /* the next CLOCK record is due */
	uint64_t clock_every_ticks;
	uint32_t calls;      /* that posted */
	uint32_t vain_polls; /* since WAIT */
	uint8_t mover;       /* the last one seen, enum nupa_mover */
	bool polls;          /* completions are made by the threads that poll for them */
	int fd;
	/* R7: the last post whose begin was read, and how many followed it. */
	const struct nupa_qp *read_qp;
	uint32_t read_bytes, read_took_ticks, unread;
};

static inline uint32_t nupa_ticks_between(uint64_t from, uint64_t to)
{
	return to < from ? 0 : to - from > UINT32_MAX ? UINT32_MAX : (uint32_t)(to - from);
}

static inline struct nupa_record *nupa_record_tail(struct nupa_record_header *header)
{
	return (struct nupa_record *)(void *)((uint8_t *)header + NUPA_RECORD_HEADER_BYTES);
}

/* Of this thread: whether a WAIT was its last record. */
extern _Thread_local bool nupa_record_waits __attribute__((tls_model("initial-exec")));

/* Both clocks at one time: of some readings, those that lie closest. */
uint64_t nupa_record_pair(uint64_t *now_ns);
void nupa_record_put_clock(struct nupa_recorder *recorder, uint64_t begun_ticks);
/* The tail is full: moves it to the body, or ends the recording. */
void nupa_record_next_tail(struct nupa_recorder *recorder);
/* Measures how fast the counter is, and what records cost, into the header; false: no memory. */
bool nupa_record_calibrate(struct nupa_recorder *recorder);

#endif
