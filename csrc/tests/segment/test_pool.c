/* SPDX-License-Identifier: BSD-3-Clause
 * The segment's pool: claimed, returned, bounded; and a full file system. */
#include "tests/segment/small_segment.h"
#include "base/atomics.h"
#include "region/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(pool_memory_is_claimed_returned_and_bounded)
{
	struct nupa_fabric *fabric = segment_create(NULL, &segment_small);
	uint64_t before = segment_backed_bytes(fabric);
	void *first, *second, *none = NULL;

	segment_claim(fabric, 1, getpid(), NUPA_SLOT_LIVE, 0);
	segment_claim(fabric, 2, 1, NUPA_SLOT_LIVE, 0);
	CHECK(nupa_pool_alloc(fabric, 1, 4097, &first) == 0);
	CHECK(nupa_pool_alloc(fabric, 0, 4096, &second) == 0);
	CHECK((uint8_t *)second == (uint8_t *)first + 8192);
	memset(first, 1, 8192);
	CHECK(segment_backed_bytes(fabric) == before + 3 * EXTENT);
	CHECK(fabric->extents[0] == NUPA_EXTENT(1, 1) && fabric->extents[2] == (uint32_t)getpid());

	CHECK(nupa_pool_alloc(fabric, 1, 6 * EXTENT, &none) == -ENOMEM);
	CHECK(nupa_pool_alloc(fabric, 1, 8 * EXTENT + 1, &none) == -ENOMEM);
	CHECK(nupa_pool_alloc(fabric, 1, UINT64_MAX, &none) == -ENOMEM);
	CHECK(nupa_pool_alloc(fabric, 1, 0, &none) == -EINVAL);
	CHECK(nupa_pool_alloc(fabric, 5, 1, &none) == -EINVAL);
	CHECK(nupa_pool_alloc(fabric, 2, 1, &none) == -EPERM);
	CHECK(nupa_pool_alloc(fabric, 3, 1, &none) == -EPERM);
	CHECK(!none);

	CHECK(nupa_pool_free(fabric, 0, first, 4097) == -EPERM);
	CHECK(nupa_pool_free(fabric, 1, (uint8_t *)first + 1, 4096) == -EINVAL);
	CHECK(nupa_pool_free(fabric, 1, first, 3 * EXTENT) == -EPERM);
	CHECK(nupa_pool_free(fabric, 1, first, 9 * EXTENT) == -EINVAL);
	CHECK(nupa_pool_free(fabric, 1, (void *)&none, 1) == -EINVAL);
	CHECK(nupa_pool_free(fabric, 1, first, 4097) == 0);
	CHECK(nupa_pool_free(fabric, 1, first, 4097) == -EPERM);
	CHECK(nupa_pool_alloc(fabric, 1, 8192, &first) == 0);
	CHECK(*(uint8_t *)first == 0);
	CHECK(nupa_pool_free(fabric, 1, first, 8192) == 0);
	CHECK(nupa_pool_free(fabric, 0, second, 4096) == 0);
	CHECK(segment_backed_bytes(fabric) == before);
	nupa_fabric_put(fabric);
}

static void *allocate_and_check(void *argument)
{
	struct nupa_fabric *fabric = argument;

	for (int round = 0; round < 2000; round++) {
		const uint64_t bytes = (1 + (uint64_t)round % 3) * EXTENT;
		uint64_t *at;
		int rc = nupa_pool_alloc(fabric, 0, bytes, (void **)&at);

		CHECK(rc == 0 || rc == -ENOMEM);
		if (rc)
			continue;
		for (uint64_t i = 0; i < bytes / 8; i += 64) {
			CHECK(at[i] == 0);
			at[i] = (uintptr_t)&bytes;
		}
		for (uint64_t i = 0; i < bytes / 8; i += 64)
			CHECK(at[i] == (uintptr_t)&bytes);
		CHECK(nupa_pool_free(fabric, 0, at, bytes) == 0);
	}
	return NULL;
}

TEST(threads_never_get_the_same_pool_memory)
{
	struct nupa_fabric *fabric = segment_create(NULL, &segment_small);
	pthread_t threads[3];

	for (int i = 0; i < 3; i++)
		CHECK(pthread_create(&threads[i], NULL, allocate_and_check, fabric) == 0);
	for (int i = 0; i < 3; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	for (uint32_t i = 0; i < 8; i++)
		CHECK(fabric->extents[i] == 0);
	nupa_fabric_put(fabric);
}

static struct {
	struct nupa_fabric *fabric;
	pthread_barrier_t start;
} first_use;

static void *use_first(void *argument)
{
	void *at;

	(void)argument;
	pthread_barrier_wait(&first_use.start);
	CHECK(nupa_pool_alloc(first_use.fabric, 0, EXTENT, &at) == 0);
	CHECK(nupa_pool_offset(first_use.fabric, at) != UINT64_MAX);
	CHECK(nupa_pool_free(first_use.fabric, 0, at, EXTENT) == 0);
	return NULL;
}

/* A part of the segment is mapped at its first use: TSan judges that threads may do so at once. */
TEST(threads_may_be_the_first_to_use_the_pool_at_once)
{
	pthread_t threads[3];

	CHECK(pthread_barrier_init(&first_use.start, NULL, 3) == 0);
	for (int round = 0; round < 200; round++) {
		first_use.fabric = segment_create(NULL, &segment_small);
		for (int i = 0; i < 3; i++)
			CHECK(pthread_create(&threads[i], NULL, use_first, NULL) == 0);
		for (int i = 0; i < 3; i++)
			CHECK(pthread_join(threads[i], NULL) == 0);
		nupa_fabric_put(first_use.fabric);
	}
	pthread_barrier_destroy(&first_use.start);
}

static bool write_text(const char *file, const char *text)
{
	int fd = open(file, O_WRONLY | O_CLOEXEC);
	bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return written;
}

/* A small tmpfs in a mount namespace of our own; false where that is not allowed. */
static bool mount_small_tmpfs(void)
{
	char uid_map[32], gid_map[32];

	snprintf(uid_map, sizeof(uid_map), "0 %u 1", (unsigned int)geteuid());
	snprintf(gid_map, sizeof(gid_map), "0 %u 1", (unsigned int)getegid());
	if (unshare(CLONE_NEWNS) &&
	    (unshare(CLONE_NEWUSER | CLONE_NEWNS) || !write_text("/proc/self/uid_map", uid_map) ||
	     !write_text("/proc/self/setgroups", "deny") ||
	     !write_text("/proc/self/gid_map", gid_map)))
		return false;
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("none", segment_folder, "tmpfs", 0, "size=108k") == 0;
}

TEST(a_full_file_system_is_an_error_and_leaves_no_file)
{
	struct nupa_fabric *fabric = NULL;
	struct nupa_config config = segment_small;
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		void *at;

		if (!mount_small_tmpfs())
			_exit(77);
		config.slots = 256;
		CHECK(segment_try_create(segment_path, &config, &fabric) == -ENOSPC &&
		      strstr(segment_why, "full"));
		CHECK(access(segment_path, F_OK) < 0);
		CHECK(segment_try_create(segment_path, &segment_small, &fabric) == 0);
		CHECK(nupa_fabric_back(fabric, segment_arena_at(fabric, 1), 16 * EXTENT) ==
		      -ENOSPC);
		CHECK(nupa_pool_alloc(fabric, 0, 8 * EXTENT, &at) == 0);
		CHECK(nupa_fabric_back(fabric, segment_arena_at(fabric, 1), 6 * EXTENT) == -ENOSPC);
		CHECK(nupa_pool_free(fabric, 0, at, 8 * EXTENT) == 0);
		CHECK(nupa_fabric_back(fabric, segment_arena_at(fabric, 1), 10 * EXTENT) == 0);
		CHECK(nupa_pool_alloc(fabric, 0, 8 * EXTENT, &at) == -ENOSPC);
		CHECK(fabric->extents[0] == 0);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
	if (WEXITSTATUS(status) == 77)
		puts("skipped: a full file system (no user namespaces here)");
}

int main(int argc, char **argv)
{
	return segment_main(argc, argv);
}
