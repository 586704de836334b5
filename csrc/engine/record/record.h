/* SPDX-License-Identifier: BSD-3-Clause
 * Recordings: the operations of a program, for `nupa model replay`, which predicts them on other
 * fabrics.  `nupa run --record FOLDER` sets NUPA_RECORD; each attachment then has a file of its own
 * in that folder.  A trace (trace.h) has all messages of a fabric; a recording has the calls of
 * one program, with the time between them.
 *
 * A file is a page with struct nupa_record_header, the tail, and the body: records of 32 bytes.
 * Numbers are of this machine's byte order.  nupa/model/recording reads it.
 *
 *   R1  All is stored with the engine's lock, in order of time of each thread.  `kind` is stored
 *       last, so a record with a kind is whole, and the first one without is the end of the tail.
 *       The file of a killed process is valid up to there.
 *   R2  A record is made once: of a request when the call that posted it returns; of a completion
 *       when the program takes it from its queue.  A completion that is never taken has none.
 *   R3  Completions of one send queue come in its order; each ends all requests before it.
 *   R4  Times are ticks of the machine's counter.  CLOCK records pair them with CLOCK_MONOTONIC,
 *       which all processes of a machine share.
 *   R5  Records are stored into the tail, which is mapped and stays in the caches.  A full tail is
 *       written to the end of the body: `body_records` counts from then on what is there, and the
 *       tail begins anew.  A body that has the tail's records already has more than it counts.
 *       On a full disk the recording ends with CUT, and the program continues.
 *   R6  A completion that a thread found without waiting has the time of the record before it: what
 *       the poll took belongs to the next gap.
 *   R7  Of posts of one request of at most 256 bytes, of the same size and QP as the one before,
 *       only every eighth has its begin read.  The others are taken to last as long as that one:
 *       the reading would be a part of the latency that is recorded. */
#ifndef NUPA_RECORD_H
#define NUPA_RECORD_H

#include "engine/core/engine.h"

#define NUPA_RECORD_MAGIC "NUPAREC\n"
#define NUPA_RECORD_VERSION 2u
#define NUPA_RECORD_HEADER_BYTES 4096u
#define NUPA_RECORD_TAIL_BYTES (1u << 14) /* 512 records: a part of a core's first cache */
#define NUPA_RECORD_BODY_OFFSET (NUPA_RECORD_HEADER_BYTES + NUPA_RECORD_TAIL_BYTES)

enum nupa_record_kind {
	NUPA_RECORD_END,        /* none: nothing follows */
	NUPA_RECORD_POST,       /* a request was posted */
	NUPA_RECORD_COMPLETION, /* the program took a completion */
	NUPA_RECORD_WAIT,       /* the thread found nothing, and waits from now on */
	NUPA_RECORD_QP,         /* a QP is connected: to RTR */
	NUPA_RECORD_CLOCK,      /* qpn | peer << 32 is CLOCK_MONOTONIC in ns */
	NUPA_RECORD_CUT,        /* the disk is full, or there is no memory: the rest is missing */
	NUPA_RECORD_LEFT,       /* the process left the fabric in order */
};

enum nupa_record_flag {
	NUPA_RECORD_SIGNALED = 1, /* POST: it makes a completion */
	NUPA_RECORD_INLINE = 2,
	NUPA_RECORD_FENCE = 4,
	NUPA_RECORD_SAME_CALL = 8,     /* POST, COMPLETION: of the same call as the one before */
	NUPA_RECORD_MADE_IN_POST = 16, /* COMPLETION: the call that posted it completed it */
	NUPA_RECORD_AT_ONCE = 32,      /* COMPLETION: R6 */
	NUPA_RECORD_AS_BEFORE = 64,    /* POST: R7 */
};

struct nupa_record {
	uint64_t ticks; /* POST: the call began; COMPLETION: it was taken */
	uint32_t
	    took_ticks; /* POST: until the call returned.  COMPLETION: since it was made.
			 * CLOCK: how long the recorder kept the program.  UINT32_MAX: longer */
	uint32_t qpn;
	uint32_t peer;   /* QP: the peer's number.  UD: of this datagram, or of its sender */
	uint32_t bytes;  /* QP: the peer's host */
	uint16_t thread; /* in order of its first record */
	uint8_t opcode;  /* enum ibv_wr_opcode; COMPLETION: enum ibv_wc_opcode; QP: ibv_qp_type */
	uint8_t status;  /* COMPLETION: enum ibv_wc_status */
	uint8_t flags;   /* enum nupa_record_flag */
	uint8_t mover;   /* POST: enum nupa_mover, as it was at most 64 posts before */
	uint8_t polls;   /* COMPLETION: polls in vain since WAIT; 255: more */
	uint8_t kind;    /* R1 */
};
NUPA_ASSERT_SIZE(struct nupa_record, 32);

struct nupa_record_header {
	char magic[8];
	uint32_t version;
	uint32_t header_bytes, record_bytes;
	uint32_t pid, host, slot;
	uint64_t generation;                   /* the fabric's */
	uint64_t start_ticks, start_ns;        /* when the attachment was made */
	uint64_t ticks_per_s;                  /* roughly: CLOCK records say it better */
	uint32_t post_ticks, completion_ticks; /* what the recorder itself adds to such a call */
	uint32_t rank;          /* + 1, as a launcher of MPI programs says; 0: none does */
	uint32_t at_once_ticks; /* as completion_ticks: of one that was found at once (R6) */
	char host_name[64];
	char program[64];         /* its path's last part */
	uint64_t body_records;    /* R5 */
	uint32_t as_before_ticks; /* as post_ticks: of one whose begin was not read (R7) */
	uint32_t reading_ticks;   /* of these, one reading of the counter */
};
NUPA_ASSERT_SIZE(struct nupa_record_header, 80 + 128 + 16);

struct nupa_recorder;

/* With NUPA_RECORD set, the file for an attachment that is being made; else NULL.  A folder that
 * cannot be written is a hint on stderr, and no recording. */
struct nupa_recorder *nupa_recorder_open(const struct nupa_engine *engine);
/* LEFT; `copy`: a fork's, in the child, which records nothing in its parent's file. */
void nupa_recorder_close(struct nupa_recorder *recorder, bool copy);

uint64_t nupa_record_ticks(void);

/* All under the engine's lock, and only where engine->recorder is set; those of completions, also
 * after it was closed (NULL). */

/* A call begins to post; what completes before nupa_record_posted was made by this call.
 * `bytes`: of its only request; UINT32_MAX: of several, or not known.  0: R7. */
uint64_t nupa_record_posting(const struct nupa_qp *qp, uint32_t bytes);
/* It returns: *wr* to *end* were posted. */
void nupa_record_posted(struct nupa_qp *qp, uint64_t begun_ticks, const struct ibv_send_wr *wr,
			const struct ibv_send_wr *end);
/* The same for requests that were built in place. */
void nupa_record_built(struct nupa_qp *qp, uint64_t begun_ticks, uint64_t first, uint64_t end);
/* A completion was made: stamps it. */
void nupa_record_made(const struct nupa_recorder *recorder, struct nupa_cqe *cqe);
/* The program takes completions of a queue, from *first* up to its head. */
void nupa_record_taken(struct nupa_recorder *recorder, const struct nupa_cq *cq, uint64_t first);
/* The thread found no completion, and polls (or sleeps) until there is one. */
void nupa_record_wait(struct nupa_recorder *recorder, bool polls);
void nupa_record_qp(const struct nupa_qp *qp);

#endif
