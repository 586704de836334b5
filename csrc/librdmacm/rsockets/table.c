/* SPDX-License-Identifier: BSD-3-Clause
 * From a file descriptor to its rsocket.  The number is that of a real descriptor, so no other file
 * has it.  Structures are reused but never freed, so a lookup needs no lock. */
#include "librdmacm/rsockets/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LEAF_BITS 10
#define LEAF_FDS (1u << LEAF_BITS)
#define LEAVES 1024u

static struct rsocket **leaves[LEAVES];
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct nupa_list live = { &live, &live };
static struct nupa_list spare = { &spare, &spare };
static uint32_t generation = 1;
static uint32_t serials;
static pthread_once_t at_fork_once = PTHREAD_ONCE_INIT;

/* A preloaded library may replace epoll_*, and call this one: so the kernel is asked itself. */
int rs_epoll_new(void)
{
	return (int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC);
}

int rs_watch(struct rsocket *rs, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	return (int)syscall(SYS_epoll_ctl, rs->fd, EPOLL_CTL_ADD, fd, &event);
}

void rs_unwatch(struct rsocket *rs, int fd)
{
	struct epoll_event event = { 0 };

	syscall(SYS_epoll_ctl, rs->fd, EPOLL_CTL_DEL, fd, &event);
}

bool rs_fd_readable(int fd)
{
	struct pollfd polled = { .fd = fd, .events = POLLIN };

	return poll(&polled, 1, 0) == 1;
}

/* A child has its parent's descriptors and may close them; the connections stay the parent's. */
static void forget_in_child(void)
{
	generation++;
	nupa_list_init(&live);
	nupa_list_init(&spare);
	pthread_mutex_init(&table_lock, NULL);
}

static void lock_table(void)
{
	pthread_mutex_lock(&table_lock);
}

static void unlock_table(void)
{
	pthread_mutex_unlock(&table_lock);
}

static void install_at_fork(void)
{
	pthread_atfork(lock_table, unlock_table, forget_in_child);
}

bool rs_is_inherited(const struct rsocket *rs)
{
	return rs->generation != nupa_load_relaxed(&generation);
}

static struct rsocket **place(int fd, bool make)
{
	uint32_t leaf = (uint32_t)fd >> LEAF_BITS;

	if (fd < 0 || leaf >= LEAVES)
		return NULL;
	if (!nupa_load_acquire(&leaves[leaf])) {
		if (!make)
			return NULL;
		pthread_mutex_lock(&table_lock);
		if (!leaves[leaf])
			nupa_store_release(&leaves[leaf],
					   calloc(LEAF_FDS, sizeof(struct rsocket *)));
		pthread_mutex_unlock(&table_lock);
		if (!nupa_load_acquire(&leaves[leaf]))
			return NULL;
	}
	return &leaves[leaf][(uint32_t)fd & (LEAF_FDS - 1)];
}

static void init_locks(struct rsocket *rs)
{
	pthread_mutex_init(&rs->control, NULL);
	pthread_mutex_init(&rs->progress, NULL);
	pthread_mutex_init(&rs->tx.lock, NULL);
	pthread_mutex_init(&rs->rx.lock, NULL);
	pthread_mutex_init(&rs->waiters_lock, NULL);
	nupa_list_init(&rs->waiters);
	nupa_list_init(&rs->queue);
	nupa_list_init(&rs->queue_link);
	nupa_list_init(&rs->io.mapped);
}

static void default_options(struct rs_options *options)
{
	const struct rs_defaults *d = rs_defaults();

	*options = (struct rs_options){
		.rcvbuf = d->rcvbuf,
		.sndbuf = d->sndbuf,
		.sq_size = d->sq_size,
		.rq_size = d->rq_size,
		.inline_bytes = d->inline_bytes,
		.iomap_size = d->iomap_size,
		.keep_idle = 7200,
		.keep_interval = 75,
		.keep_count = 9,
		.max_segment = 4096, /* the path MTU */
		.receive_ns = RS_FOREVER,
		.send_ns = RS_FOREVER,
	};
}

/* NULL with errno.  The socket has one reference, its descriptor's. */
struct rsocket *rs_new(int domain, int type, int protocol)
{
	struct rsocket **slot, *rs;
	struct nupa_list *used;
	int fd;

	pthread_once(&at_fork_once, install_at_fork);
	fd = rs_epoll_new();
	if (fd < 0)
		return NULL;
	slot = place(fd, true);
	if (!slot) {
		close(fd);
		errno = (uint32_t)fd >> LEAF_BITS < LEAVES ? ENOMEM : EMFILE;
		return NULL;
	}
	pthread_mutex_lock(&table_lock);
	used = nupa_list_pop(&spare);
	pthread_mutex_unlock(&table_lock);
	rs = used ? container_of(used, struct rsocket, live_link) : calloc(1, sizeof(*rs));
	if (!rs) {
		close(fd);
		errno = ENOMEM;
		return NULL;
	}
	init_locks(rs);
	rs->fd = fd;
	rs->accept_fd = -1;
	rs->domain = domain;
	rs->type = type;
	rs->protocol = protocol;
	rs->generation = generation;
	default_options(&rs->options);
	pthread_mutex_lock(&table_lock);
	rs->serial = ++serials;
	nupa_list_add(&live, &rs->live_link);
	pthread_mutex_unlock(&table_lock);
	nupa_store_release(&rs->refs, 1);
	nupa_store_release(slot, rs);
	return rs;
}

struct rsocket *rs_get_quietly(int fd)
{
	struct rsocket **slot = place(fd, false);
	struct rsocket *rs = slot ? nupa_load_acquire(slot) : NULL;
	int refs;

	if (!rs)
		return NULL;
	refs = nupa_load_relaxed(&rs->refs);
	do {
		if (!refs)
			return NULL;
	} while (!nupa_cas_seq(&rs->refs, &refs, refs + 1));
	if (nupa_load_acquire(slot) == rs)
		return rs;
	rs_put(rs); /* closed, and used again for another, meanwhile */
	return NULL;
}

struct rsocket *rs_get(int fd)
{
	struct rsocket *rs = rs_get_quietly(fd);

	if (rs && (rs_is_inherited(rs) || nupa_load_acquire(&rs->closing))) {
		rs_put(rs);
		errno = EBADF;
		return NULL;
	}
	if (!rs)
		errno = fcntl(fd, F_GETFD) < 0 ? EBADF : ENOTSOCK;
	return rs;
}

/* From now on no look-up finds it. */
void rs_hide(struct rsocket *rs)
{
	nupa_store_release(place(rs->fd, false), NULL);
	nupa_store_release(&rs->closed, 1);
	rs_notify(rs);
}

static void close_inherited(struct rsocket *rs)
{
	if (rs->completions)
		close(rs->completions->fd);
	if (rs->events)
		close(rs->events->fd);
	if (rs->accept_fd >= 0)
		close(rs->accept_fd);
	close(rs->fd);
}

static void destroy(struct rsocket *rs)
{
	if (rs_is_inherited(rs)) {
		close_inherited(rs); /* references of the parent's threads stay as they are */
		return;
	}
	if (rs->destroy_transport)
		rs->destroy_transport(rs);
	if (rs->accept_fd >= 0)
		close(rs->accept_fd);
	close(rs->fd);
	free(rs->options.route);
	pthread_mutex_lock(&table_lock);
	nupa_list_del(&rs->live_link);
	/* All fields except refs, which a late lookup may read. */
	memset((char *)rs + sizeof(rs->refs), 0, sizeof(*rs) - sizeof(rs->refs));
	nupa_list_add(&spare, &rs->live_link);
	pthread_mutex_unlock(&table_lock);
}

/* Keeps errno: it is the last step of a call. */
void rs_put(struct rsocket *rs)
{
	int code = errno;

	if (__atomic_sub_fetch(&rs->refs, 1, __ATOMIC_ACQ_REL) == 0)
		destroy(rs);
	errno = code;
}

/* All sockets of this process, by live_link.  None is created or destroyed until the unlock. */
struct nupa_list *rs_lock_live(void)
{
	pthread_mutex_lock(&table_lock);
	return &live;
}

void rs_unlock_live(void)
{
	pthread_mutex_unlock(&table_lock);
}
