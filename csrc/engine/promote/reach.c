/* SPDX-License-Identifier: BSD-3-Clause
 * Copies page by page, by system calls where plain moves fault: see reach.h. */
#define _GNU_SOURCE
#include "engine/promote/reach.h"

#include "segment/layout/limits.h"
#include "engine/promote/promote.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

/* The memory of one process. */
struct memory {
	pid_t pid; /* 0: ours */
	int fd;    /* proc_pid_mem(5), which rights of pages do not bind; -1: not opened yet */
};

static int open_memory(struct memory *memory)
{
	char path[32] = "/proc/self/mem";

	if (memory->fd < 0) {
		if (memory->pid)
			snprintf(path, sizeof(path), "/proc/%d/mem", (int)memory->pid);
		memory->fd = open(path, O_RDWR | O_CLOEXEC);
	}
	return memory->fd;
}

static bool read_plain(const struct memory *memory, void *to, uint64_t from, size_t bytes)
{
	struct iovec local = { to, bytes }, remote = { (void *)(uintptr_t)from, bytes };

	if (!memory->pid)
		return nupa_guard_copy(to, (const void *)(uintptr_t)from, bytes);
	return process_vm_readv(memory->pid, &local, 1, &remote, 1, 0) == (ssize_t)bytes;
}

static bool write_plain(const struct memory *memory, uint64_t to, const void *from, size_t bytes)
{
	struct iovec local = { (void *)(uintptr_t)from, bytes };
	struct iovec remote = { (void *)(uintptr_t)to, bytes };

	if (!memory->pid)
		return nupa_guard_copy((void *)(uintptr_t)to, from, bytes);
	return process_vm_writev(memory->pid, &local, 1, &remote, 1, 0) == (ssize_t)bytes;
}

static bool read_piece(struct memory *memory, void *to, uint64_t from, size_t bytes)
{
	return read_plain(memory, to, from, bytes) ||
	       (open_memory(memory) >= 0 &&
		pread(memory->fd, to, bytes, (off_t)from) == (ssize_t)bytes);
}

/* A page that is promoted is one of our memfd, which rights of mappings do not bind. */
static bool write_promoted(const struct memory *memory, uint64_t to, const void *from, size_t bytes)
{
	struct nupa_shared_range range;
	bool written;

	if (memory->pid || nupa_promote_find((void *)(uintptr_t)to, bytes, &range, 1) != 1)
		return false;
	written = pwrite(nupa_promote_fd(), from, bytes,
			 (off_t)(range.file_off + (to - range.va))) == (ssize_t)bytes;
	nupa_promote_release(&range, 1);
	return written;
}

static bool write_piece(struct memory *memory, uint64_t to, const void *from, size_t bytes)
{
	return write_plain(memory, to, from, bytes) ||
	       (open_memory(memory) >= 0 &&
		pwrite(memory->fd, from, bytes, (off_t)to) == (ssize_t)bytes) ||
	       write_promoted(memory, to, from, bytes);
}

/* Up to the end of the page that *at* is in. */
static uint64_t to_page_end(uint64_t at, uint64_t bytes)
{
	uint64_t left = NUPA_PAGE_BYTES - (at & (NUPA_PAGE_BYTES - 1));

	return left < bytes ? left : bytes;
}

static enum nupa_reach copy_pieces(struct memory *target, uint64_t to, struct memory *source,
				   uint64_t from, uint64_t bytes)
{
	uint8_t piece[NUPA_PAGE_BYTES];

	while (bytes) {
		uint64_t last = nupa_guard_last((void *)(uintptr_t)to, bytes);
		uint64_t n = to_page_end(from, to_page_end(to, bytes > last ? bytes - last : last));
		uint8_t byte;

		if (!read_piece(source, piece, from, n))
			return NUPA_REACH_NO_SOURCE;
		if (!write_piece(target, to, piece, n) && read_piece(target, &byte, to, 1))
			return NUPA_REACH_NO_TARGET;
		to += n;
		from += n;
		bytes -= n;
	}
	return NUPA_REACH_DONE;
}

bool nupa_reach_is_there(const void *at, uint64_t bytes)
{
	struct memory memory = { 0, -1 };
	uint64_t from = (uintptr_t)at;
	bool there = true;
	uint8_t byte;

	while (bytes && there) {
		uint64_t n = to_page_end(from, bytes);

		there = read_piece(&memory, &byte, from, 1);
		from += n;
		bytes -= n;
	}
	if (memory.fd >= 0)
		close(memory.fd);
	return there;
}

bool nupa_reach_from_outside(void)
{
	return true;
}

enum nupa_reach nupa_reach_copy(pid_t to_pid, uint64_t to, pid_t from_pid, uint64_t from,
				uint64_t bytes)
{
	struct memory target = { to_pid, -1 }, source = { from_pid, -1 };
	enum nupa_reach result = copy_pieces(&target, to, &source, from, bytes);

	if (target.fd >= 0)
		close(target.fd);
	if (source.fd >= 0)
		close(source.fd);
	return result;
}
