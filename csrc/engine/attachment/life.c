/* SPDX-License-Identifier: BSD-3-Clause
 * Proof of life: it tells others that the owner of a slot is still the program that attached.
 *
 *   slot->life     the thread id of its death watch, in a robust list of that thread
 *                  (set_robust_list(2)).  The kernel marks the word when the thread ends: when the
 *                  process is killed, and also by exec, after which pid and start time are those
 *                  of another program.  It needs no pid, so it holds across pid namespaces as well.
 *   slot->life_fd  a pipe's end that closes then: a peer that opened the other end is woken.
 *
 * Where the kernel has no robust lists the word is 0, and the pid is all there is. */
#define _GNU_SOURCE
#include "engine/attachment/attachment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

void nupa_life_begin(struct nupa_engine *engine)
{
	struct robust_list_head *head = &engine->life_head;

	head->list.next = &engine->life_entry;
	head->list_op_pending = NULL;
	head->futex_offset = (long)((intptr_t)&engine->slot->life - (intptr_t)&engine->life_entry);
	engine->life_entry.next = &head->list;
	/* This thread's list was libc's, for mutexes that it never takes. */
	if (syscall(SYS_set_robust_list, head, sizeof(*head)) == 0)
		nupa_store_release(&engine->slot->life, (uint32_t)gettid());
	nupa_store_release(&engine->life_begun, true);
}

/* A program may exec as soon as it is attached. */
void nupa_life_await(const struct nupa_engine *engine)
{
	while (!nupa_load_acquire(&engine->life_begun))
		sched_yield();
}

void nupa_life_end(struct nupa_engine *engine)
{
	engine->life_head.list.next = &engine->life_head.list;
	nupa_store_release(&engine->slot->life, 0);
}

int nupa_life_open(struct nupa_engine *engine)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	close(ends[0]);
	engine->life_fd = ends[1];
	nupa_store_release(&engine->slot->life_fd, (uint32_t)ends[1] + 1);
	return 0;
}

/* Wakes the watch's epoll when the pipe of the peer closes.  False: the peer has none, or is not
 * ours to look into. */
bool nupa_life_watch(struct nupa_engine *engine, struct nupa_channel *channel)
{
	struct epoll_event event = { .events = EPOLLONESHOT }; /* EPOLLHUP always */
	uint32_t number = nupa_load_acquire(&channel->peer_slot->life_fd);
	struct stat status;
	char path[64];

	if (number == 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%u/fd/%u", channel->peer_pid, number - 1);
	/* Opening something else might do something. */
	if (stat(path, &status) || !S_ISFIFO(status.st_mode))
		return false;
	channel->life_fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (channel->life_fd < 0)
		return false;
	event.data.fd = channel->life_fd;
	return epoll_ctl(engine->watch_epoll, EPOLL_CTL_ADD, channel->life_fd, &event) == 0;
}
