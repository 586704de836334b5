/* SPDX-License-Identifier: BSD-3-Clause
 * The file of a recorder: header, tail and body (record.h R5). */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/hint.h"
#include "engine/record/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TAIL_RECORDS (NUPA_RECORD_TAIL_BYTES / (uint32_t)sizeof(struct nupa_record))
#define FILES_MAX 10000u

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
	recorder->at = nupa_record_tail(mapped);
	recorder->end = recorder->at + TAIL_RECORDS - 1; /* the last: next_tail */
	return true;
}

/* Moves the tail's records to the body; false, and errno: there they stay. */
static bool write_tail(struct nupa_recorder *recorder)
{
	struct nupa_record_header *header = recorder->header;
	struct nupa_record *tail = nupa_record_tail(header);
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

uint64_t nupa_record_pair(uint64_t *now_ns)
{
	uint64_t least_ticks = UINT64_MAX, at_ticks = 0;

	*now_ns = 0;
	for (int i = 0; i < 3; i++) { /* another program may run between two readings */
		uint64_t before_ticks = nupa_record_ticks(), ns = nupa_clock_ns();
		uint64_t took_ticks = nupa_record_ticks() - before_ticks;

		if (took_ticks >= least_ticks)
			continue;
		least_ticks = took_ticks;
		at_ticks = before_ticks + took_ticks / 2;
		*now_ns = ns;
	}
	return at_ticks;
}

void nupa_record_put_clock(struct nupa_recorder *recorder, uint64_t begun_ticks)
{
	struct nupa_record *record = recorder->at++;
	uint64_t now_ns, at_ticks = nupa_record_pair(&now_ns);

	record->ticks = at_ticks;
	record->took_ticks = nupa_ticks_between(begun_ticks, record->ticks);
	record->qpn = (uint32_t)now_ns;
	record->peer = (uint32_t)(now_ns >> 32);
	recorder->clock_ticks = record->ticks + recorder->clock_every_ticks;
	nupa_store_release(&record->kind, NUPA_RECORD_CLOCK);
}

void nupa_record_next_tail(struct nupa_recorder *recorder)
{
	uint64_t begun_ticks = nupa_record_ticks();

	if (!write_tail(recorder)) {
		nupa_hint("the recording ends here: %s", strerror(errno));
		recorder->end->ticks = begun_ticks;
		nupa_store_release(&recorder->end->kind, NUPA_RECORD_CUT);
		recorder->at = recorder->end = NULL;
		return;
	}
	nupa_record_put_clock(recorder, begun_ticks);
}

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

	if (!folder || !*folder)
		return NULL;
	recorder = calloc(1, sizeof(*recorder));
	if (!recorder)
		return NULL;
	recorder->fd = make_file(folder, engine->fabric->hosts[engine->host].name);
	if (recorder->fd < 0 || !map_file(recorder)) {
		nupa_hint("no recording in %s: %s", folder, strerror(errno));
		nupa_recorder_close(recorder, true);
		return NULL;
	}
	fill_header(recorder->header, engine);
	if (!nupa_record_calibrate(recorder)) {
		nupa_recorder_close(recorder, true);
		return NULL;
	}
	__atomic_thread_fence(__ATOMIC_RELEASE); /* with its magic, a header is whole */
	memcpy(recorder->header->magic, NUPA_RECORD_MAGIC, sizeof(recorder->header->magic));
	nupa_record_put_clock(recorder, nupa_record_ticks());
	return recorder;
}

void nupa_recorder_close(struct nupa_recorder *recorder, bool copy)
{
	if (!recorder)
		return;
	if (!copy && recorder->at == recorder->end && recorder->at)
		nupa_record_next_tail(recorder);
	if (!copy && recorder->at) {
		nupa_record_put_clock(
		    recorder, nupa_record_ticks()); /* at most the place of a CUT, as LEFT */
		recorder->at->ticks = nupa_record_ticks();
		nupa_store_release(&recorder->at++->kind, (uint8_t)NUPA_RECORD_LEFT);
		(void)!write_tail(recorder); /* on a full disk they stay in the tail */
	}
	if (recorder->header)
		munmap(recorder->header, NUPA_RECORD_BODY_OFFSET);
	if (recorder->fd >= 0)
		close(recorder->fd);
	free(recorder);
}
