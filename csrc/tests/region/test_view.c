/* SPDX-License-Identifier: BSD-3-Clause
 * Windows on regions: memory that is taken away under running loads and stores reads as ones in
 * each process, and never as another region's. */
#include "base/atomics.h"
#include "tests/support/runner.h"
#include "tests/region/viewed.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static char why[512];

/* The first line of a file of a thread; empty: it is gone. */
static void line_of(const char *thread, const char *what, char *line, int bytes)
{
	char path[300];
	FILE *file;

	line[0] = 0;
	snprintf(path, sizeof(path), "/proc/self/task/%s/%s", thread, what);
	file = fopen(path, "r");
	if (!file)
		return;
	if (!fgets(line, bytes, file))
		line[0] = 0;
	fclose(file);
}

/* Those that wait for losses; epoch: that are asleep at this word (proc(5), syscall). */
static uint32_t count_watchers(const uint32_t *epoch)
{
	DIR *folder = opendir("/proc/self/task");
	char asleep[64];
	uint32_t n = 0;

	CHECK(folder);
	snprintf(asleep, sizeof(asleep), "%ld %#lx ", (long)SYS_futex, (unsigned long)epoch);
	for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
		char name[32], call[256];

		line_of(entry->d_name, "comm", name, sizeof(name));
		line_of(entry->d_name, "syscall", call, sizeof(call));
		n += strcmp(name, "nupa-windows\n") == 0 &&
		     (!epoch || strncmp(call, asleep, strlen(asleep)) == 0);
	}
	closedir(folder);
	return n;
}

/* One names itself when it runs, and is listed for a moment when it has ended. */
static void await_watchers(uint32_t n, const uint32_t *epoch)
{
	const uint64_t until_ns = test_now_ns() + WAIT_NS;

	while (count_watchers(epoch) != n) {
		CHECK(test_now_ns() < until_ns);
		sched_yield();
	}
}

TEST(hosts_that_share_a_region_see_each_others_stores)
{
	struct nupa_fabric *fabric = viewed_fabric();
	uint64_t region = viewed_region(fabric, 5000, NUPA_COHERENT_HARDWARE);
	struct nupa_view *here = viewed_map(fabric, region, 0),
			 *there = viewed_map(fabric, region, 1), *none;
	uint8_t bytes[8];

	CHECK_EQ(nupa_view_bytes(here), 5000);
	CHECK(words(here) != words(there));
	words(here)[3] = OURS;
	CHECK_EQ(words(there)[3], OURS);
	CHECK_EQ(nupa_view_read(there, 4992, bytes, 8), 0);
	CHECK_EQ(nupa_view_read(there, 4993, bytes, 8), -ERANGE);
	CHECK_EQ(nupa_view_write(there, UINT64_MAX, bytes, 8), -ERANGE);
	CHECK_EQ(nupa_view_flush(there, 8, 5000), -ERANGE);
	CHECK_EQ(nupa_region_free(fabric, region, false), -EBUSY);
	nupa_view_free(here);
	nupa_view_free(there);
	CHECK_EQ(nupa_region_share(fabric, region, (uint64_t[4]){ 0 }), 0);
	CHECK_EQ(nupa_view_of_region(fabric, region, 1, &none, why, sizeof(why)), -EACCES);
	CHECK(strstr(why, "not shared with host 1"));
	CHECK_EQ(nupa_region_free(fabric, region, false), 0);
	CHECK_EQ(nupa_view_of_region(fabric, region, 0, &none, why, sizeof(why)), -ESTALE);
	nupa_fabric_put(fabric);
}

TEST(a_closed_window_reads_as_ones_at_the_same_addresses)
{
	struct nupa_fabric *fabric = viewed_fabric();
	uint64_t region = viewed_region(fabric, REGION_BYTES, NUPA_COHERENT_HARDWARE), next;
	struct nupa_view *view = viewed_map(fabric, region, 0), *other;
	uint64_t word;

	viewed_fill(view, OURS);
	nupa_view_close(view);
	nupa_view_close(view);
	CHECK_EQ(nupa_region_free(fabric, region, false), 0);
	next = viewed_region(fabric, REGION_BYTES, NUPA_COHERENT_HARDWARE);
	other = viewed_map(fabric, next, 1);
	viewed_fill(other, THEIRS);
	for (uint32_t i = 0; i < WORDS; i++)
		CHECK_EQ(words(view)[i], ONES);
	words(view)[0] = OURS;
	CHECK_EQ(words(other)[0], THEIRS);
	CHECK_EQ(nupa_view_read(view, 8, &word, 8), -ESTALE);
	CHECK_EQ(word, ONES);
	CHECK_EQ(nupa_view_write(view, 8, &word, 8), -ESTALE);
	CHECK_EQ(nupa_view_lost(view), NUPA_VIEW_CLOSED);
	nupa_view_free(view);
	nupa_view_free(other);
	nupa_fabric_put(fabric);
}

TEST(the_thread_is_there_while_a_window_is)
{
	struct nupa_fabric *fabric = viewed_fabric();
	uint64_t region = viewed_region(fabric, PAGE, NUPA_COHERENT_HARDWARE);

	for (uint32_t round = 0; round < 50; round++) {
		struct nupa_view *a = viewed_map(fabric, region, 0);
		struct nupa_view *b = viewed_map(fabric, region, 1);

		await_watchers(1, NULL);
		nupa_view_free(a);
		CHECK_EQ(count_watchers(NULL), 1);
		nupa_view_free(b);
		await_watchers(0, NULL);
	}
	nupa_fabric_put(fabric);
}

/* --- loss under load ------------------------------------------------------------- */

static void *store_until_lost(void *arg)
{
	const struct under_way *way = arg;

	while (nupa_view_lost(way->view) == NUPA_VIEW_KEPT)
		for (uint64_t i = WORDS / 2; i < WORDS; i++)
			nupa_store_relaxed(&words(way->view)[i], OURS);
	return NULL;
}

static void *read_until_lost(void *arg)
{
	const struct under_way *way = arg;
	uint8_t found[PAGE], ones[PAGE];
	int rc;

	memset(ones, 0xff, sizeof(ones));
	do {
		rc = nupa_view_read(way->view, 0, found, sizeof(found));
		CHECK(rc == 0 || rc == -ESTALE);
		CHECK(rc || (found[0] == 0x11 && !memcmp(found, found + 1, sizeof(found) - 1)));
	} while (!rc);
	CHECK_EQ(memcmp(found, ones, sizeof(ones)), 0);
	return NULL;
}

/* A process that maps each region it is told, and loads until it is gone. */
struct child {
	int to, from;
	pid_t pid;
};

static void load_in_child(struct nupa_fabric *fabric, int in, int out)
{
	uint64_t region;

	while (read(in, &region, sizeof(region)) == sizeof(region)) {
		struct nupa_view *view = viewed_map(fabric, region, 1);
		struct under_way way = { .view = view, .words = WORDS / 2 };

		CHECK_EQ(words(view)[0], OURS);
		CHECK_EQ(write(out, "1", 1), 1);
		load_until_ones(&way);
		CHECK_EQ(nupa_view_lost(view), NUPA_VIEW_REVOKED);
		nupa_view_free(view);
		CHECK_EQ(write(out, "2", 1), 1);
	}
	_exit(0);
}

/* TSan wants children to be there before threads are. */
static struct child fork_loader(struct nupa_fabric *fabric)
{
	int to[2], from[2];
	pid_t pid;

	CHECK_EQ(pipe(to), 0);
	CHECK_EQ(pipe(from), 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		close(to[1]);
		load_in_child(fabric, to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	return (struct child){ to[1], from[0], pid };
}

static void await_child(const struct child *child, char sign)
{
	char byte = 0;

	CHECK_EQ(read(child->from, &byte, 1), 1);
	CHECK_EQ(byte, sign);
}

static void take_away_under_load(struct nupa_fabric *fabric, const struct child *child)
{
	uint64_t region = viewed_region(fabric, REGION_BYTES, NUPA_COHERENT_HARDWARE), next;
	struct nupa_view *view = viewed_map(fabric, region, 0), *other;
	struct under_way way = { .view = view, .words = WORDS / 2 };
	pthread_t threads[3];

	viewed_fill(view, OURS);
	CHECK_EQ(write(child->to, &region, sizeof(region)), sizeof(region));
	await_child(child, '1');
	CHECK_EQ(pthread_create(&threads[0], NULL, load_until_ones, &way), 0);
	CHECK_EQ(pthread_create(&threads[1], NULL, store_until_lost, &way), 0);
	CHECK_EQ(pthread_create(&threads[2], NULL, read_until_lost, &way), 0);
	while (!nupa_load_acquire(&way.started))
		nupa_cpu_pause();
	CHECK_EQ(nupa_region_free(fabric, region, true), 0);
	CHECK_EQ(nupa_view_lost(view), NUPA_VIEW_REVOKED);
	next = viewed_region(fabric, REGION_BYTES, NUPA_COHERENT_HARDWARE);
	other = viewed_map(fabric, next, 0);
	for (uint32_t i = 0; i < WORDS; i++)
		CHECK_EQ(words(other)[i], 0); /* no store came late */
	viewed_fill(other, THEIRS);
	await_child(child, '2');
	for (uint32_t i = 0; i < 3; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	for (uint32_t i = 0; i < WORDS; i++)
		CHECK_EQ(words(other)[i], THEIRS);
	nupa_view_free(view);
	nupa_view_free(other);
	CHECK_EQ(nupa_region_free(fabric, next, false), 0);
}

TEST(a_region_freed_by_force_is_ones_to_all_who_load_and_store)
{
	struct nupa_fabric *fabric = viewed_fabric();
	struct child child = fork_loader(fabric);

	for (uint32_t round = 0; round < 10; round++)
		take_away_under_load(fabric, &child);
	close(child.to);
	CHECK_CHILD(child.pid);
	nupa_fabric_put(fabric);
}

#define COMERS 3u
#define VISITS 100u

struct coming {
	struct nupa_fabric *fabric;
	uint64_t region; /* atomic; 0: nothing more comes */
};

/* Each sees its region's number in all words, or ones, or that the region is gone. */
static void *come_and_go(void *arg)
{
	struct coming *coming = arg;
	uint64_t region;

	while ((region = nupa_load_acquire(&coming->region))) {
		struct nupa_view *view;
		int rc = nupa_view_of_region(coming->fabric, region, 1, &view, NULL, 0);

		CHECK(rc == 0 || rc == -ESTALE);
		if (rc)
			continue;
		for (uint32_t i = 0; i < 64; i++) {
			const uint64_t found = nupa_load_relaxed(&words(view)[i]);

			CHECK(found == region || found == ONES);
		}
		nupa_view_free(view);
	}
	return NULL;
}

TEST(windows_that_come_and_go_never_see_another_region)
{
	struct coming coming = { .fabric = viewed_fabric() };
	pthread_t threads[COMERS];

	for (uint32_t visit = 0; visit < VISITS; visit++) {
		uint64_t region =
		    viewed_region(coming.fabric, REGION_BYTES, NUPA_COHERENT_HARDWARE);
		struct nupa_view *view = viewed_map(coming.fabric, region, 0);

		viewed_fill(view, region);
		nupa_store_release(&coming.region, region);
		for (uint32_t i = 0; visit == 0 && i < COMERS; i++)
			CHECK_EQ(pthread_create(&threads[i], NULL, come_and_go, &coming), 0);
		if (visit % 2)
			nupa_view_free(view);
		CHECK_EQ(nupa_region_free(coming.fabric, region, true), 0);
		if (visit % 2 == 0)
			nupa_view_free(view);
	}
	nupa_store_release(&coming.region, 0);
	for (uint32_t i = 0; i < COMERS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	nupa_fabric_put(coming.fabric);
}

TEST(a_child_has_none_of_its_parents_windows)
{
	struct nupa_fabric *fabric = viewed_fabric();
	uint64_t region = viewed_region(fabric, REGION_BYTES, NUPA_COHERENT_HARDWARE);
	struct nupa_view *view = viewed_map(fabric, region, 0);
	pid_t child;

	viewed_fill(view, OURS);
	/* Sanitizers' allocators are not made for a fork beside a thread that uses them. */
	await_watchers(1, nupa_region_epoch(fabric));
	child = fork();
	if (child == 0) {
		CHECK_EQ(nupa_view_lost(view), NUPA_VIEW_FORKED);
		CHECK_EQ(words(view)[5], ONES);
		words(view)[5] = THEIRS;
		nupa_view_free(view);
#if !defined(__SANITIZE_THREAD__) /* which allows no thread here */
		struct nupa_view *own = viewed_map(fabric, region, 0);

		CHECK_EQ(words(own)[5], OURS);
		nupa_view_free(own);
		await_watchers(0, NULL);
#endif
		_exit(0);
	}
	CHECK_CHILD(child);
	CHECK_EQ(words(view)[5], OURS);
	CHECK_EQ(nupa_region_free(fabric, region, true), 0);
	CHECK_EQ(words(view)[5], ONES);
	nupa_view_free(view);
	nupa_fabric_put(fabric);
}
