/* SPDX-License-Identifier: BSD-3-Clause
 * The recorder of an attachment: its file, and what calls add to it. */
#define _GNU_SOURCE
#include "engine/record/record.h"
#include "base/clock.h"
#include "base/hint.h"
#include "engine/channel/channel.h"
#include "engine/core/qp.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TAIL_RECORDS (NUPA_RECORD_TAIL_BYTES / (uint32_t)sizeof(struct nupa_record))
#define CLOCK_EVERY_NS UINT64_C(100000000) /* R4: so often, if anything is posted */
#define CALIBRATE_NS UINT64_C(200000)
#define CALIBRATE_RECORDS 256u
#define CALIBRATE_ROUNDS 4
#define MADE_IN_POST (UINT64_C(1) << 63) /* in a CQE's stamp */
#define FILES_MAX 10000u
#define MOVER_EVERY 64u
#define BEGIN_EVERY 8u /* R7 */
#define SMALL_BYTES 256u
#define AHEAD 4 /* records: two lines, which arrive while the program works */

struct nupa_recorder {
	struct nupa_record *at, *end; /* of the tail; NULL: the recording has ended (CUT) */
	struct nupa_record_header *header;
	uint64_t posting_ticks; /* 0: no call posts */
	uint64_t last_ticks;    /* the last reading in a record */
	uint64_t clock_ticks;   /* the next CLOCK record is due */
	uint64_t clock_every_ticks;
	uint32_t calls; /* that posted */
	uint32_t vain_polls; /* since WAIT */
	uint8_t mover;  /* the last one seen, enum nupa_mover */
	bool polls;     /* completions are made by the threads that poll for them */
	int fd;
	/* R7: the last post whose begin was read, and how many followed it. */
	const struct nupa_qp *read_qp;
	uint32_t read_bytes, read_took_ticks, unread;
};

/* Of this thread: its number (+ 1) in the process, and whether a WAIT was its last record. */
static _Thread_local uint16_t thread_number __attribute__((tls_model("initial-exec")));
static _Thread_local bool thread_waits __attribute__((tls_model("initial-exec")));
static uint16_t threads_seen;

uint64_t nupa_record_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc(); /* of one rate on all cores: constant_tsc, nonstop_tsc */
#elif defined(__aarch64__)
	uint64_t ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#else
	return nupa_clock_ns();
#endif
}

static uint32_t ticks_between(uint64_t from, uint64_t to)
{
	return to < from ? 0 : to - from > UINT32_MAX ? UINT32_MAX : (uint32_t)(to - from);
}

/* --- the file ------------------------------------------------------------------------ */

static struct nupa_record *tail_of(struct nupa_record_header *header)
{
	return (struct nupa_record *)(void *)((uint8_t *)header + NUPA_RECORD_HEADER_BYTES);
}

/* Maps header and tail; false, and errno. */
static bool map_file(struct nupa_recorder *recorder)
{
	/* A store into a hole of a full disk would end the program. */
	int error = posix_fallocate(recorder->fd, 0, NUPA_RECORD_BODY_OFFSET);
	void *mapped;

	if (error) {
		errno = error;
		return false;
	}
	mapped = mmap(NULL, NUPA_RECORD_BODY_OFFSET, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_POPULATE, recorder->fd, 0);
	if (mapped == MAP_FAILED)
		return false;
	recorder->header = mapped;
	recorder->at = tail_of(mapped);
	recorder->end = recorder->at + TAIL_RECORDS - 1; /* the last: next_tail */
	return true;
}

/* Moves the tail's records to the body; false, and errno: there they stay. */
static bool write_tail(struct nupa_recorder *recorder)
{
	struct nupa_record_header *header = recorder->header;
	struct nupa_record *tail = tail_of(header);
	size_t bytes = (size_t)((uint8_t *)recorder->at - (uint8_t *)tail);
	off_t end = (off_t)(NUPA_RECORD_BODY_OFFSET + header->body_records * sizeof(*tail));

	for (size_t done = 0; done < bytes;) {
		ssize_t wrote = pwrite(recorder->fd, (const uint8_t *)tail + done, bytes - done,
				       end + (off_t)done);

		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0) {
			int error = wrote ? errno : ENOSPC;

			(void)!ftruncate(recorder->fd, end);
			errno = error;
			return false;
		}
		done += (size_t)wrote;
	}
	/* R5: a reader sees the tail empty before the body counts its records. */
	nupa_store_release(&tail->kind, NUPA_RECORD_END);
	memset(tail, 0, bytes);
	nupa_store_release(&header->body_records, header->body_records + bytes / sizeof(*tail));
	recorder->at = tail;
	return true;
}

static void put_clock(struct nupa_recorder *recorder, uint64_t begun_ticks)
{
	struct nupa_record *record = recorder->at++;
	uint64_t now_ns = nupa_clock_ns();

	record->ticks = nupa_record_ticks();
	record->took_ticks = ticks_between(begun_ticks, record->ticks);
	record->qpn = (uint32_t)now_ns;
	record->peer = (uint32_t)(now_ns >> 32);
	recorder->clock_ticks = record->ticks + recorder->clock_every_ticks;
	nupa_store_release(&record->kind, NUPA_RECORD_CLOCK);
}

static void next_tail(struct nupa_recorder *recorder)
{
	uint64_t begun_ticks = nupa_record_ticks();

	if (!write_tail(recorder)) {
		nupa_hint("the recording ends here: %s", strerror(errno));
		recorder->end->ticks = begun_ticks;
		nupa_store_release(&recorder->end->kind, NUPA_RECORD_CUT);
		recorder->at = recorder->end = NULL;
		return;
	}
	put_clock(recorder, begun_ticks);
}

static uint16_t this_thread(void)
{
	while (unlikely(!thread_number)) /* 65,536 threads later it is 0 again */
		thread_number = __atomic_add_fetch(&threads_seen, 1, __ATOMIC_RELAXED);
	return thread_number;
}

/* The next record with all but its kind unset; NULL: the recording has ended. */
static inline struct nupa_record *begin(struct nupa_recorder *recorder, uint64_t ticks)
{
	struct nupa_record *record;

	if (unlikely(recorder->at == recorder->end)) {
		if (!recorder->at)
			return NULL;
		next_tail(recorder);
		if (!recorder->at)
			return NULL;
	}
	record = recorder->at;
	record->ticks = ticks;
	record->thread = this_thread();
	return record;
}

static inline void finish(struct nupa_recorder *recorder, struct nupa_record *record,
			  enum nupa_record_kind kind)
{
	nupa_store_release(&record->kind, (uint8_t)kind);
	recorder->at = record + 1;
	nupa_prefetch_write(record + AHEAD); /* beyond the tail: it does no harm */
}

/* --- calls --------------------------------------------------------------------------- */

uint64_t nupa_record_posting(const struct nupa_qp *qp, uint32_t bytes)
{
	struct nupa_recorder *recorder = qp->engine->recorder;

	if (qp == recorder->read_qp && bytes == recorder->read_bytes &&
	    ++recorder->unread < BEGIN_EVERY) {
		recorder->posting_ticks = recorder->last_ticks;
		return 0;
	}
	recorder->read_qp = bytes <= SMALL_BYTES ? qp : NULL;
	recorder->read_bytes = bytes;
	recorder->unread = 0;
	return recorder->posting_ticks = nupa_record_ticks();
}

static inline void put_post(struct nupa_recorder *recorder, const struct nupa_record *what)
{
	struct nupa_record *record = begin(recorder, what->ticks);

	if (unlikely(!record))
		return;
	record->took_ticks = what->took_ticks;
	record->qpn = what->qpn;
	record->peer = what->peer;
	record->bytes = what->bytes;
	record->opcode = what->opcode;
	record->flags = what->flags;
	record->mover = what->mover;
	finish(recorder, record, NUPA_RECORD_POST);
}

static uint8_t flags_of(const struct nupa_qp *qp, uint32_t send_flags)
{
	return (uint8_t)((send_flags & IBV_SEND_SIGNALED || qp->sq_sig_all ? NUPA_RECORD_SIGNALED
									   : 0u) |
			 (send_flags & IBV_SEND_INLINE ? NUPA_RECORD_INLINE : 0u) |
			 (send_flags & IBV_SEND_FENCE ? NUPA_RECORD_FENCE : 0u));
}

/* What all requests of a call that returns now have in common. */
static inline struct nupa_record posted(const struct nupa_qp *qp, uint64_t begun_ticks)
{
	uint64_t now_ticks = nupa_record_ticks();
	struct nupa_recorder *recorder = qp->engine->recorder;
	uint8_t flags = 0;

	if (begun_ticks) {
		recorder->read_took_ticks = ticks_between(begun_ticks, now_ticks);
	} else {
		begun_ticks = now_ticks - recorder->read_took_ticks;
		if (begun_ticks < recorder->last_ticks)
			begun_ticks = recorder->last_ticks;
		flags = NUPA_RECORD_AS_BEFORE;
	}
	thread_waits = false;
	recorder->posting_ticks = 0;
	recorder->last_ticks = now_ticks;
	/* The line of the channel's header is shared with the peer: seldom. */
	if (unlikely(recorder->calls++ % MOVER_EVERY == 0) && qp->channel)
		recorder->mover = (uint8_t)nupa_load_relaxed(&qp->channel->tx.header->mover);
	if (unlikely(now_ticks > recorder->clock_ticks) && recorder->at != recorder->end)
		put_clock(recorder, now_ticks);
	return (struct nupa_record){
		.ticks = begun_ticks,
		.took_ticks = ticks_between(begun_ticks, now_ticks),
		.qpn = qp->ibv.qp_num,
		.flags = flags,
		.mover = recorder->mover,
	};
}

void nupa_record_posted(struct nupa_qp *qp, uint64_t begun_ticks, const struct ibv_send_wr *wr,
			const struct ibv_send_wr *end)
{
	struct nupa_record what = posted(qp, begun_ticks);
	uint8_t same_call = what.flags;

	for (; wr && wr != end; wr = wr->next) {
		uint64_t bytes = 0;

		for (int i = 0; i < wr->num_sge; i++)
			bytes += wr->sg_list[i].length;
		what.bytes = (uint32_t)bytes;
		what.peer = qp->type == IBV_QPT_UD ? wr->wr.ud.remote_qpn : 0;
		what.opcode = (uint8_t)wr->opcode;
		what.flags = flags_of(qp, wr->send_flags) | same_call;
		same_call = NUPA_RECORD_SAME_CALL;
		put_post(qp->engine->recorder, &what);
	}
}

void nupa_record_built(struct nupa_qp *qp, uint64_t begun_ticks, uint64_t first, uint64_t end)
{
	struct nupa_record what = posted(qp, begun_ticks);
	uint8_t same_call = what.flags;

	for (uint64_t index = first; index != end; index++) {
		const struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, index);

		what.bytes = wqe->length_bytes;
		what.peer = qp->type == IBV_QPT_UD ? wqe->dest_qpn : 0;
		what.opcode = wqe->opcode;
		what.flags = flags_of(qp, wqe->flags) | same_call;
		same_call = NUPA_RECORD_SAME_CALL;
		put_post(qp->engine->recorder, &what);
	}
}

void nupa_record_made(const struct nupa_recorder *recorder, struct nupa_cqe *cqe)
{
	if (unlikely(!recorder))
		return;
	if (recorder->posting_ticks)
		cqe->record_ticks = recorder->posting_ticks | MADE_IN_POST;
	else /* a poll's own: it is about to be taken, and no second reading is worth it */
		cqe->record_ticks = recorder->polls ? 0 : nupa_record_ticks();
}

void nupa_record_taken(struct nupa_recorder *recorder, const struct nupa_cq *cq, uint64_t first)
{
	uint64_t now_ticks;
	uint8_t same_call = 0, polls = 0;

	if (unlikely(!recorder))
		return; /* other threads still run while the process exits */
	/* R6 */
	if (thread_waits) {
		recorder->last_ticks = nupa_record_ticks();
		polls = (uint8_t)(recorder->vain_polls < UINT8_MAX ? recorder->vain_polls
								   : UINT8_MAX);
	} else {
		same_call = NUPA_RECORD_AT_ONCE;
	}
	now_ticks = recorder->last_ticks;
	thread_waits = false;
	for (uint64_t index = first; index != cq->head; index++) {
		const struct nupa_cqe *cqe = &cq->ring[index & cq->mask];
		uint64_t made_ticks =
		    cqe->record_ticks ? cqe->record_ticks & ~MADE_IN_POST : now_ticks;
		struct nupa_record *record = begin(recorder, now_ticks);

		if (unlikely(!record))
			return;
		record->took_ticks = ticks_between(made_ticks, now_ticks);
		record->qpn = cqe->qp_num;
		record->peer = cqe->src_qp;
		record->bytes = cqe->byte_len;
		record->opcode = cqe->opcode;
		record->status = cqe->status;
		record->polls = polls;
		record->flags =
		    same_call | (cqe->record_ticks & MADE_IN_POST ? NUPA_RECORD_MADE_IN_POST : 0);
		same_call |= NUPA_RECORD_SAME_CALL;
		finish(recorder, record, NUPA_RECORD_COMPLETION);
	}
}

void nupa_record_wait(struct nupa_recorder *recorder, bool polls)
{
	struct nupa_record *record;

	recorder->polls = polls;
	recorder->vain_polls++;
	if (thread_waits)
		return;
	thread_waits = true;
	recorder->vain_polls = 0;
	record = begin(recorder, nupa_record_ticks());
	if (record)
		finish(recorder, record, NUPA_RECORD_WAIT);
}

void nupa_record_qp(const struct nupa_qp *qp)
{
	struct nupa_recorder *recorder = qp->engine->recorder;
	struct nupa_record *record = begin(recorder, nupa_record_ticks());

	if (!record)
		return;
	record->qpn = qp->ibv.qp_num;
	record->peer = qp->dest_qpn;
	record->bytes = qp->dest_host;
	record->opcode = qp->type;
	finish(recorder, record, NUPA_RECORD_QP);
}

/* --- files --------------------------------------------------------------------------- */

static int make_file(const char *folder, const char *host)
{
	char name[NUPA_NAME_BYTES];

	/* The segment's word: a slash would lead out of the folder. */
	snprintf(name, sizeof(name), "%s", host);
	for (char *at = name; (at = strchr(at, '/'));)
		*at = '_';
	for (uint32_t i = 0; i < FILES_MAX; i++) { /* a fork or another container has our pid */
		char path[4096];
		int fd;

		if ((size_t)snprintf(path, sizeof(path), "%s/%s-%d-%u.nrec", folder, name,
				     (int)getpid(), i) >= sizeof(path)) {
			errno = ENAMETOOLONG;
			return -1;
		}
		fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (fd >= 0 || errno != EEXIST)
			return fd;
	}
	return -1;
}

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
		thread_waits = call == TAKES;
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

		recorder->at = tail_of(recorder->header);
		for (uint32_t i = 0; i < CALIBRATE_RECORDS; i++)
			enter(program, call);
		ticks = ticks_between(begun_ticks, nupa_record_ticks()) / CALIBRATE_RECORDS;
		if (ticks < least_ticks)
			least_ticks = ticks;
	}
	return least_ticks;
}

/* How fast the counter is, and what a record costs. */
static void calibrate(struct nupa_recorder *recorder, struct program *program)
{
	struct nupa_record_header *header = recorder->header;
	uint64_t ticks = nupa_record_ticks(), ns = nupa_clock_ns(), now_ns;
	uint32_t every_eighth;

	memset(program, 0, sizeof(*program));
	header->start_ticks = ticks;
	header->start_ns = ns;
	do
		now_ns = nupa_clock_ns();
	while (now_ns - ns < CALIBRATE_NS);
	/* Not by integers: a process that was stopped meanwhile has more ticks than fit. */
	header->ticks_per_s =
	    (uint64_t)((double)(nupa_record_ticks() - ticks) * 1e9 / (double)(now_ns - ns));
	recorder->clock_ticks = UINT64_MAX;
	program->engine.recorder = recorder;
	program->qp.engine = &program->engine;
	program->cq.ring = &program->cqe;
	program->cq.head = 1;
	program->wr.sg_list = &program->sge;
	program->wr.num_sge = 1;
	header->reading_ticks = time_of(program, READS);
	header->post_ticks = time_of(program, POSTS);
	every_eighth = time_of(program, POSTS_AS_BEFORE) * BEGIN_EVERY;
	header->as_before_ticks =
	    ticks_between(header->post_ticks, every_eighth) / (BEGIN_EVERY - 1);
	header->completion_ticks = time_of(program, TAKES);
	header->at_once_ticks = time_of(program, TAKES_AT_ONCE);
	recorder->clock_every_ticks = header->ticks_per_s / (UINT64_C(1000000000) / CLOCK_EVERY_NS);
	recorder->read_qp = NULL;
	recorder->calls = 0;
	recorder->at = tail_of(header);
	recorder->last_ticks = nupa_record_ticks();
	memset(recorder->at, 0, CALIBRATE_RECORDS * sizeof(*recorder->at));
}

/* As Open MPI, PMIx, MPICH and Slurm say it. */
static uint32_t rank_of_launcher(void)
{
	static const char *const names[] = { "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
					     "SLURM_PROCID" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *text = getenv(names[i]);

		if (text && *text >= '0' && *text <= '9')
			return (uint32_t)strtoul(text, NULL, 10) + 1;
	}
	return 0;
}

static void fill_header(struct nupa_record_header *header, const struct nupa_engine *engine)
{
	header->version = NUPA_RECORD_VERSION;
	header->header_bytes = NUPA_RECORD_HEADER_BYTES;
	header->record_bytes = sizeof(struct nupa_record);
	header->pid = (uint32_t)getpid();
	header->host = engine->host;
	header->slot = engine->slot_index;
	header->generation = engine->fabric->geometry.generation;
	header->rank = rank_of_launcher();
	snprintf(header->host_name, sizeof(header->host_name), "%s",
		 engine->fabric->hosts[engine->host].name);
	snprintf(header->program, sizeof(header->program), "%s", program_invocation_short_name);
}

struct nupa_recorder *nupa_recorder_open(const struct nupa_engine *engine)
{
	const char *folder = secure_getenv("NUPA_RECORD");
	struct nupa_recorder *recorder;
	struct program *program;

	if (!folder || !*folder)
		return NULL;
	recorder = calloc(1, sizeof(*recorder));
	program = aligned_alloc(_Alignof(struct program), sizeof(*program));
	if (!recorder || !program) {
		free(recorder);
		free(program);
		return NULL;
	}
	recorder->fd = make_file(folder, engine->fabric->hosts[engine->host].name);
	if (recorder->fd < 0 || !map_file(recorder)) {
		nupa_hint("no recording in %s: %s", folder, strerror(errno));
		nupa_recorder_close(recorder, true);
		free(program);
		return NULL;
	}
	fill_header(recorder->header, engine);
	calibrate(recorder, program);
	free(program);
	__atomic_thread_fence(__ATOMIC_RELEASE); /* with its magic, a header is whole */
	memcpy(recorder->header->magic, NUPA_RECORD_MAGIC, sizeof(recorder->header->magic));
	put_clock(recorder, nupa_record_ticks());
	return recorder;
}

void nupa_recorder_close(struct nupa_recorder *recorder, bool copy)
{
	if (!recorder)
		return;
	if (!copy && recorder->at == recorder->end && recorder->at)
		next_tail(recorder);
	if (!copy && recorder->at) {
		put_clock(recorder, nupa_record_ticks()); /* at most the place of a CUT, as LEFT */
		recorder->at->ticks = nupa_record_ticks();
		finish(recorder, recorder->at, NUPA_RECORD_LEFT);
		(void)!write_tail(recorder); /* on a full disk they stay in the tail */
	}
	if (recorder->header)
		munmap(recorder->header, NUPA_RECORD_BODY_OFFSET);
	if (recorder->fd >= 0)
		close(recorder->fd);
	free(recorder);
}
