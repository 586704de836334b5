/* SPDX-License-Identifier: BSD-3-Clause
 * Effects of a fork on the attachments of this process (man ibv_fork_init).
 *
 * A child has none of its parent's verbs objects.  Ours live in shared memory and in threads that
 * did not come along.  The child keeps a private copy, so that closing inherited objects (as a
 * garbage collector does) has no effect on others; it may attach anew.  It has a copy of the
 * parent's memory, registered or not, as of the fork: promoted memory is made private before, and
 * shared again after. */
#define _GNU_SOURCE
#include "engine/attachment/attachment.h"
#include "engine/core/lane.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before(void)
{
	nupa_registry_lock();
	for (struct nupa_engine *engine = nupa_engines; engine; engine = engine->next) {
		nupa_engine_lock(engine);
		nupa_mr_hide_all(engine);
	}
	nupa_promote_before_fork(); /* memory that other threads are just registering, too */
}

static void in_parent(void)
{
	nupa_promote_after_fork();
	nupa_store_relaxed(&nupa_forks, nupa_forks + 1);
	for (struct nupa_engine *engine = nupa_engines; engine; engine = engine->next)
		nupa_mr_share_all(engine);
	for (struct nupa_engine *engine = nupa_engines; engine; engine = engine->next) {
		nupa_mr_show_all(engine);
		nupa_engine_unlock(engine);
	}
	nupa_registry_unlock();
}

static void in_child(void)
{
	nupa_lock_forget_in_child();
	for (struct nupa_engine *engine = nupa_engines; engine; engine = engine->next) {
		engine->forked = true;
		engine->fenced = false; /* the parent's threads were not copied */
		close(engine->life_fd); /* the parent's death must not wait for ours */
		nupa_lock_init(&engine->lock);
		nupa_lanes_forget(engine);
		nupa_recorder_close(engine->recorder, true);
		engine->recorder = NULL;
		nupa_mr_forget_in_child(engine);
		nupa_bell_detach(engine);
		nupa_bell_forget_in_child(engine->fabric);
		nupa_fabric_detach_copy(engine->fabric);
	}
	nupa_engines = NULL;
	nupa_engines_readers = 0;
	nupa_promote_forget_in_child();
	nupa_device_list_forget();
	nupa_registry_init();
}

static void install(void)
{
	pthread_atfork(before, in_parent, in_child);
}

void nupa_fork_prepare(void)
{
	pthread_once(&once, install);
}
