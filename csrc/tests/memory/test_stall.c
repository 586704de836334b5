/* SPDX-License-Identifier: BSD-3-Clause
 * Registrations that take long, and threads that do not wait for them.  A thread that holds the
 * lock of promotion stands for a long one. */
#define _GNU_SOURCE
#include "engine/core/engine.h"
#include "tests/support/promoted.h"
#include "tests/support/target.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGES 16u
#define UNTOUCHED_BYTES (64u << 20)
#define ALL                                                                                        \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)

enum action { REGISTER, DEREGISTER, REREGISTER };

struct worker {
	enum action action;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	uint8_t *memory;
	pid_t tid; /* 0: it has not begun */
	pthread_t thread;
};

static void *work(void *arg)
{
	struct worker *worker = arg;

	nupa_store_release(&worker->tid, gettid());
	switch (worker->action) {
	case REGISTER:
		worker->mr = nupa_reg_mr(worker->pd, worker->memory, PAGES * page(),
					 (uintptr_t)worker->memory, ALL);
		CHECK(worker->mr);
		break;
	case DEREGISTER:
		CHECK_EQ(nupa_dereg_mr(worker->mr), 0);
		break;
	case REREGISTER:
		CHECK_EQ(nupa_rereg_mr(worker->mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
				       worker->memory, PAGES * page(), 0),
			 0);
		break;
	}
	return NULL;
}

static void start(struct worker *worker)
{
	CHECK_EQ(pthread_create(&worker->thread, NULL, work, worker), 0);
}

/* Waits until it waits: for a lock, as nothing else in these calls sleeps. */
static void await_sleep(const struct worker *worker)
{
	const uint64_t end_ns = test_now_ns() + WAIT_NS;
	char path[64], state = 0;

	while (!nupa_load_acquire(&worker->tid))
		CHECK(test_now_ns() < end_ns);
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", worker->tid);
	while (state != 'S') {
		FILE *file = fopen(path, "re");

		CHECK(file);
		CHECK_EQ(fscanf(file, "%*d (%*[^)]) %c", &state), 1);
		fclose(file);
		CHECK(test_now_ns() < end_ns);
	}
}

static struct ibv_mr *registered(struct end *end, uint8_t *memory)
{
	struct ibv_mr *mr = nupa_reg_mr(end->pd, memory, PAGES * page(), (uintptr_t)memory, ALL);

	CHECK(mr);
	return mr;
}

TEST(polls_do_not_wait_for_a_deregistration_beside_a_long_registration)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *end = end_open(fabric, &end_defaults);
	struct nupa_engine *engine = nupa_engine_of(end->context);
	struct worker longer = { .action = REGISTER,
				 .pd = end->pd,
				 .memory = filled_pages(PAGES, 1) };
	struct worker other = { .action = DEREGISTER };
	uint32_t regions;
	struct ibv_wc wc;

	if (!promotion_works())
		return;
	other.mr = registered(end, filled_pages(PAGES, 2));
	regions = engine->mrs_used;
	nupa_promote_before_fork();
	start(&longer);
	await_sleep(&longer);
	start(&other);
	await_sleep(&other); /* with its region gone, which needs the engine's lock */
	CHECK_EQ(nupa_poll_cq(end->recv_cq, 1, &wc), 0);
	CHECK_EQ(nupa_load_relaxed(&engine->mrs_used), regions - 1);
	nupa_promote_after_fork();
	CHECK_EQ(pthread_join(longer.thread, NULL), 0);
	CHECK_EQ(pthread_join(other.thread, NULL), 0);
	CHECK_EQ(nupa_dereg_mr(longer.mr), 0);
	end_close(end);
	nupa_fabric_put(fabric);
}

TEST(polls_do_not_wait_for_a_reregistration)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *end = end_open(fabric, &end_defaults);
	struct worker longer = { .action = REREGISTER, .memory = filled_pages(PAGES, 1) };
	struct ibv_wc wc;

	if (!promotion_works())
		return;
	longer.mr = registered(end, filled_pages(PAGES, 2));
	nupa_promote_before_fork();
	start(&longer);
	await_sleep(&longer);
	CHECK_EQ(nupa_poll_cq(end->recv_cq, 1, &wc), 0);
	nupa_promote_after_fork();
	CHECK_EQ(pthread_join(longer.thread, NULL), 0);
	CHECK_EQ(nupa_dereg_mr(longer.mr), 0);
	end_close(end);
	nupa_fabric_put(fabric);
}

/* Of all memfds of a process. */
static uint64_t memfd_bytes(pid_t pid)
{
	uint64_t bytes = 0;
	char path[64];
	struct dirent *entry;
	DIR *folder;
	int at;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	folder = opendir(path);
	CHECK(folder);
	at = dirfd(folder);
	CHECK(at >= 0);
	while ((entry = readdir(folder))) {
		char target[64] = "";
		struct stat status;

		if (readlinkat(at, entry->d_name, target, sizeof(target) - 1) > 0 &&
		    !strncmp(target, "/memfd:", 7) && !fstatat(at, entry->d_name, &status, 0))
			bytes += (uint64_t)status.st_blocks * 512;
	}
	closedir(folder);
	return bytes;
}

TEST(a_write_fills_no_holes_of_the_peer_but_its_own)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_defaults;
	struct target target = target_fork(fabric);
	struct end *end = end_open(fabric, &end_defaults);
	uint64_t before;

	if (!promotion_works())
		return;
	options.memory_bytes = UNTOUCHED_BYTES;
	target_open(&target, fabric, &options);
	target_connect(&target, &end->self);
	end_connect(end, &target.address);
	pattern_fill(end->memory, 8, 7);
	before = memfd_bytes(target.pid);
	end_start(end, IBV_WR_RDMA_WRITE, 1, 0, 8);
	cq_expect(end->send_cq, 1, IBV_WC_SUCCESS);
	CHECK(memfd_bytes(target.pid) - before < UNTOUCHED_BYTES / 8);
	target_check(&target, 0, 8, 7);
	target_close(&target);
	end_close(end);
	nupa_fabric_put(fabric);
}
