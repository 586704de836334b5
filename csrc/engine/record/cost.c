/* SPDX-License-Identifier: BSD-3-Clause
 * What a recorder costs: readers of the recording subtract it. */
#include "base/clock.h"
#include "engine/record/recorder.h"

#include <stdlib.h>
#include <string.h>

#define CLOCK_EVERY_NS UINT64_C(100000000) /* R4: so often, if anything is posted */
#define CALIBRATE_NS UINT64_C(200000)
#define CALIBRATE_RECORDS 256u
#define CALIBRATE_ROUNDS 4

/* The calls of a program that does nothing else. */
struct program {
	struct nupa_engine engine;
	struct nupa_qp qp;
	struct nupa_cq cq;
	struct nupa_cqe cqe;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
};

enum program_call { READS, POSTS, POSTS_AS_BEFORE, TAKES, TAKES_AT_ONCE, PROGRAM_CALLS };

static void program_call(struct program *program, enum program_call call)
{
	struct nupa_qp *qp = &program->qp;
	uint64_t begun_ticks;

	switch (call) {
	case READS:
		program->engine.recorder->last_ticks = nupa_record_ticks();
		break;
	case POSTS:
	case POSTS_AS_BEFORE:
		begun_ticks = nupa_record_posting(qp, call == POSTS ? UINT32_MAX : 8);
		nupa_record_posted(qp, begun_ticks, &program->wr, NULL);
		break;
	default:
		nupa_record_waits = call == TAKES;
		nupa_record_taken(program->engine.recorder, &program->cq, 0);
	}
}

/* Returns what each call takes in a row, as the fastest of some rounds: the first one warms. */
static uint32_t time_of(struct program *program, enum program_call call)
{
	struct nupa_recorder *recorder = program->engine.recorder;
	void (*volatile enter)(struct program *, enum program_call) = program_call;
	uint32_t least_ticks = UINT32_MAX;

	for (int round = 0; round < CALIBRATE_ROUNDS; round++) {
		uint64_t begun_ticks = nupa_record_ticks();
		uint32_t ticks;

		recorder->at = nupa_record_tail(recorder->header);
		for (uint32_t i = 0; i < CALIBRATE_RECORDS; i++)
			enter(program, call);
		ticks = nupa_ticks_between(begun_ticks, nupa_record_ticks()) / CALIBRATE_RECORDS;
		if (ticks < least_ticks)
			least_ticks = ticks;
	}
	return least_ticks;
}

bool nupa_record_calibrate(struct nupa_recorder *recorder)
{
	struct program *program = aligned_alloc(_Alignof(struct program), sizeof(*program));
	struct nupa_record_header *header = recorder->header;
	uint64_t ns, now_ns, ticks = nupa_record_pair(&ns);
	uint32_t every_eighth;

	if (!program)
		return false;
	memset(program, 0, sizeof(*program));
	header->start_ticks = ticks;
	header->start_ns = ns;
	do
		now_ns = nupa_clock_ns();
	while (now_ns - ns < CALIBRATE_NS);
	ticks = nupa_record_pair(&now_ns) - ticks;
	/* Not by integers: a process that was stopped meanwhile has more ticks than fit. */
	header->ticks_per_s = (uint64_t)((double)ticks * 1e9 / (double)(now_ns - ns));
	recorder->clock_ticks = UINT64_MAX;
	program->engine.recorder = recorder;
	program->qp.engine = &program->engine;
	program->cq.ring = &program->cqe;
	program->cq.head = 1;
	program->wr.sg_list = &program->sge;
	program->wr.num_sge = 1;
	header->reading_ticks = time_of(program, READS);
	header->post_ticks = time_of(program, POSTS);
	every_eighth = time_of(program, POSTS_AS_BEFORE) * NUPA_RECORD_BEGIN_EVERY;
	header->as_before_ticks =
	    nupa_ticks_between(header->post_ticks, every_eighth) / (NUPA_RECORD_BEGIN_EVERY - 1);
	header->completion_ticks = time_of(program, TAKES);
	header->at_once_ticks = time_of(program, TAKES_AT_ONCE);
	recorder->clock_every_ticks = header->ticks_per_s / (UINT64_C(1000000000) / CLOCK_EVERY_NS);
	recorder->read_qp = NULL;
	recorder->calls = 0;
	recorder->at = nupa_record_tail(header);
	recorder->last_ticks = nupa_record_ticks();
	memset(recorder->at, 0, CALIBRATE_RECORDS * sizeof(*recorder->at));
	free(program);
	return true;
}
