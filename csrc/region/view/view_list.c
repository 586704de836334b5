/* SPDX-License-Identifier: BSD-3-Clause
 * All views of this process, and their loss.  One thread for each fabric that has windows here
 * sleeps until a region is revoked or a port's state is set.  The child of a fork has no views. */
#include "base/atomics.h"
#include "region/region.h"
#include "region/view/view_internal.h"
#include "segment/control/share.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MS_NS UINT64_C(1000000)
#define FOR_EVER UINT64_MAX
#define RETRY_NS MS_NS            /* a row that is just being changed */
#define MACHINES_NS (100 * MS_NS) /* no futex wakes another kernel's thread */
#define SETTLE_TRIES 16u

struct nupa_view_watcher {
	struct nupa_fabric *fabric; /* one of its views holds it */
	const uint32_t *epoch;
	pthread_t thread;
	uint32_t views;
	uint32_t ending, ended; /* its thread shall; is about to: a futex */
	struct nupa_view_watcher *next;
};

/* For the lists, and for losses.  Held over a fork, so that a child finds no half of either. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct nupa_view *views;
static struct nupa_view_watcher *watchers;

static void futex_wait(const uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
	struct timespec timeout = { .tv_sec = (time_t)(timeout_ns / (1000 * MS_NS)),
				    .tv_nsec = (long)(timeout_ns % (1000 * MS_NS)) };

	syscall(SYS_futex, word, FUTEX_WAIT, expected, timeout_ns == FOR_EVER ? NULL : &timeout,
		NULL, 0);
}

static void futex_wake_all(const uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* --- losses; with the lock ------------------------------------------------------- */

/* The memory before the cache: a flush that is under way writes ones where no process sees them. */
static void lose(struct nupa_view *view, enum nupa_view_loss loss)
{
	if (view->lost != NUPA_VIEW_KEPT)
		return;
	nupa_store_release(&view->lost, (uint32_t)loss); /* V2 */
	nupa_view_cover(view->home, view->mapped);
	if (view->at != view->home)
		nupa_view_cover(view->at, view->mapped);
	/* A child's mappings are its parent's. */
	if (view->watcher && loss != NUPA_VIEW_FORKED)
		(void)nupa_region_map_end(view->fabric, view->mapping);
}

/* Loses it if its region is gone or a link was down; false: that cannot be told yet. */
static bool settle(struct nupa_view *view)
{
	struct nupa_region_info info;
	uint32_t downs;
	int rc;

	if (view->lost != NUPA_VIEW_KEPT)
		return true;
	if (nupa_load_acquire(&view->fabric->picture)) {
		lose(view, NUPA_VIEW_REVOKED);
		return true;
	}
	rc = nupa_region_find(view->fabric, view->region, &info);
	if (rc == -EAGAIN)
		return false;
	if (rc || info.state != NUPA_REGION_LIVE ||
	    !nupa_tenants_share(view->fabric, view->host, info.host, info.tag))
		lose(view, NUPA_VIEW_REVOKED);
	else if (!nupa_region_linked(view->fabric, view->host, view->home_host, &downs) ||
		 downs != view->links)
		lose(view, NUPA_VIEW_LINK_DOWN);
	return true;
}

/* --- the thread ------------------------------------------------------------------ */

static bool settle_all(const struct nupa_view_watcher *watcher)
{
	bool settled = true;

	pthread_mutex_lock(&lock);
	for (struct nupa_view *view = views; view; view = view->next)
		if (view->watcher == watcher)
			settled = settle(view) && settled;
	pthread_mutex_unlock(&lock);
	return settled;
}

static void *watch(void *arg)
{
	struct nupa_view_watcher *watcher = arg;
	const uint64_t idle_ns = nupa_fabric_machines(watcher->fabric) ? MACHINES_NS : FOR_EVER;

	pthread_setname_np(pthread_self(), "nupa-windows"); /* for who looks at threads */
	while (!nupa_load_acquire(&watcher->ending)) {
		const uint32_t seen = nupa_load_acquire(watcher->epoch);
		const bool settled = settle_all(watcher);

		if (nupa_load_acquire(&watcher->ending))
			break;
		futex_wait(watcher->epoch, seen, settled ? idle_ns : RETRY_NS);
	}
	nupa_store_release(&watcher->ended, 1);
	futex_wake_all(&watcher->ended);
	return NULL;
}

static int start(struct nupa_view_watcher *watcher)
{
	sigset_t all, old;
	int error;

	/* Signals are the program's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = pthread_create(&watcher->thread, NULL, watch, watcher);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -error;
}

/* Without the lock.  The word is not ours to change: it may fall asleep just after it was woken. */
static void stop(struct nupa_view_watcher *watcher)
{
	nupa_store_release(&watcher->ending, 1);
	while (!nupa_load_acquire(&watcher->ended)) {
		futex_wake_all(watcher->epoch);
		futex_wait(&watcher->ended, 0, MS_NS);
	}
	pthread_join(watcher->thread, NULL);
	free(watcher);
}

/* With the lock: the watcher of a fabric, made for its first view. */
static int find_watcher(struct nupa_fabric *fabric, struct nupa_view_watcher **out)
{
	struct nupa_view_watcher *watcher = watchers;
	int rc;

	while (watcher && watcher->fabric != fabric)
		watcher = watcher->next;
	*out = watcher;
	if (watcher)
		return 0;
	watcher = calloc(1, sizeof(*watcher));
	if (!watcher)
		return -ENOMEM;
	watcher->fabric = fabric;
	watcher->epoch = nupa_region_epoch(fabric);
	rc = watcher->epoch ? start(watcher) : -errno;
	if (rc) {
		free(watcher);
		return rc;
	}
	watcher->next = watchers;
	watchers = watcher;
	*out = watcher;
	return 0;
}

/* With the lock; its last view: returns it, for stop(). */
static struct nupa_view_watcher *leave_watcher(struct nupa_view_watcher *watcher)
{
	struct nupa_view_watcher **link = &watchers;

	if (!watcher || --watcher->views)
		return NULL;
	while (*link != watcher)
		link = &(*link)->next;
	*link = watcher->next;
	return watcher;
}

/* --- fork ------------------------------------------------------------------------ */

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
	pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
	struct nupa_view_watcher *watcher;
	struct nupa_view *view;

	pthread_mutex_init(&lock, NULL);
	while ((view = views)) {
		views = view->next;
		lose(view, NUPA_VIEW_FORKED);
		view->watcher = NULL;
	}
	while ((watcher = watchers)) {
		watchers = watcher->next;
		free(watcher);
	}
}

static void install(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

/* --- the list -------------------------------------------------------------------- */

int nupa_view_enlist(struct nupa_view *view)
{
	uint32_t tries = 0;
	int rc = 0;

	pthread_once(&once, install);
	pthread_mutex_lock(&lock);
	if (view->region)
		rc = find_watcher(view->fabric, &view->watcher);
	if (!rc) {
		view->next = views;
		views = view;
	}
	if (view->watcher) {
		view->watcher->views++;
		/* It may be revoked since map_begin, and the thread may have looked already.  A row
		 * that is never settled is damaged. */
		while (!settle(view))
			if (++tries == SETTLE_TRIES)
				lose(view, NUPA_VIEW_REVOKED);
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

void nupa_view_revoke(struct nupa_view *view)
{
	pthread_mutex_lock(&lock);
	lose(view, NUPA_VIEW_REVOKED);
	pthread_mutex_unlock(&lock);
}

void nupa_view_close(struct nupa_view *view)
{
	struct nupa_view_watcher *idle = NULL;

	pthread_mutex_lock(&lock);
	for (struct nupa_view **link = &views; *link; link = &(*link)->next) {
		if (*link != view)
			continue;
		*link = view->next;
		lose(view, NUPA_VIEW_CLOSED);
		idle = leave_watcher(view->watcher);
		view->watcher = NULL;
		break;
	}
	pthread_mutex_unlock(&lock);
	if (idle)
		stop(idle);
}
