/* SPDX-License-Identifier: BSD-3-Clause
 * Memory that promotion leaves alone: where the program's threads live, and what this thread itself
 * writes while writers are held off. */
#define _GNU_SOURCE
#include "engine/promote/promote_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of a control block, on either side of the head of its list of robust mutexes. */
#define TCB_BEFORE_BYTES 1024u
#define TCB_BEHIND_BYTES 3072u
#define FRAMES_BYTES 65536u /* of our own stack, for our use meanwhile */

/* A thread's control block holds the head of its list of robust mutexes, and at the top of its
 * stack lies the control block.  The main thread's stack has a mapping of its own. */
static int keep_out_of(struct nupa_maps *maps, pid_t tid, struct nupa_keep_out *keep_out)
{
	uint64_t page = nupa_page_bytes();
	void *head = NULL;
	size_t bytes;
	struct nupa_vma vma;
	uint64_t at;

	if (syscall(SYS_get_robust_list, tid, &head, &bytes))
		return errno == ESRCH ? 0 : -errno; /* ended meanwhile */
	at = (uintptr_t)head;
	if (!at)
		return 0;
	keep_out->from = (at - TCB_BEFORE_BYTES) & ~(page - 1);
	keep_out->to = (at + TCB_BEHIND_BYTES + page - 1) & ~(page - 1);
	if (tid == getpid())
		return 1;
	maps->at = 0;
	if (nupa_maps_find(maps, at, &vma) && vma.start < keep_out->from)
		keep_out->from = vma.start;
	return 1;
}

static int keep_outs_of_threads(struct nupa_maps *maps, int tasks, struct nupa_keep_out *keep_outs,
				int n_max)
{
	_Alignas(struct dirent64) char buffer[4096];
	int n = 0;

	for (;;) {
		long bytes = syscall(SYS_getdents64, tasks, buffer, sizeof(buffer));

		if (bytes <= 0)
			return bytes < 0 ? -errno : n;
		for (long at = 0; at < bytes;) {
			const struct dirent64 *entry = (const void *)(buffer + at);
			int more;

			at += entry->d_reclen;
			if (entry->d_name[0] == '.')
				continue;
			if (n == n_max)
				return -E2BIG;
			more = keep_out_of(maps, (pid_t)atoi(entry->d_name), &keep_outs[n]);
			if (more < 0)
				return more;
			n += more;
		}
	}
}

int nupa_keep_outs(struct nupa_keep_out *keep_outs, int n_max)
{
	uint64_t page = nupa_page_bytes();
	uint64_t frame = (uintptr_t)__builtin_frame_address(0);
	uint64_t error_word = (uintptr_t)&errno;
	struct nupa_maps maps;
	int tasks, n;

	/* Memory that this thread itself writes while writers, and so it, are held off. */
	keep_outs[0].from = (frame - FRAMES_BYTES) & ~(page - 1);
	keep_outs[0].to = (frame + FRAMES_BYTES + page - 1) & ~(page - 1);
	keep_outs[1].from = error_word & ~(page - 1);
	keep_outs[1].to = keep_outs[1].from + page;
	tasks = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (tasks < 0)
		return -errno;
	n = nupa_maps_open(&maps);
	if (n == 0) {
		n = keep_outs_of_threads(&maps, tasks, keep_outs + 2, n_max - 2);
		nupa_maps_close(&maps);
	}
	close(tasks);
	return n < 0 ? n : n + 2;
}
