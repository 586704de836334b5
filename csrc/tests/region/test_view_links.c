/* SPDX-License-Identifier: BSD-3-Clause
 * Windows and links.  A port that goes down takes the windows behind it away in each process before
 * the wait for that returns.  A port that comes up gives none of them back. */
#include "base/atomics.h"
#include "tests/support/runner.h"
#include "tests/region/shared_region.h"
#include "tests/region/viewed.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FOLLOW_MS 10000

static char why[512];

static void set_link(struct nupa_fabric *fabric, uint32_t port, uint32_t state)
{
	CHECK_EQ(nupa_fabric_set_port(fabric, port, state), 0);
	CHECK_EQ(nupa_region_await_links(fabric), 0);
}

static void check_lost(const struct nupa_view *view)
{
	uint64_t word;

	for (uint64_t i = 0; i < nupa_view_bytes(view) / sizeof(word); i++)
		CHECK_EQ(words(view)[i], ONES);
	CHECK_EQ(nupa_view_read(view, 8, &word, 8), -ESTALE);
	CHECK_EQ(word, ONES);
	CHECK_EQ(nupa_view_write(view, 8, &word, 8), -ESTALE);
	CHECK_EQ(nupa_view_lost(view), NUPA_VIEW_LINK_DOWN);
}

/* Either end of the link. */
TEST(a_port_takes_the_windows_of_its_host_and_no_others)
{
	for (uint32_t port = 0; port < 2; port++) {
		struct nupa_fabric *fabric = viewed_fabric();
		const uint64_t region = viewed_region(fabric, PAGE, NUPA_COHERENT_HARDWARE);
		struct nupa_view *here = viewed_map(fabric, region, 0),
				 *there = viewed_map(fabric, region, 1), *none;
		struct nupa_region_info info;

		viewed_fill(here, OURS);
		set_link(fabric, port, NUPA_PORT_DOWN);
		check_lost(here);
		words(here)[1] = THEIRS; /* no other process sees it */
		CHECK_EQ(words(there)[1], OURS);
		CHECK_EQ(nupa_view_lost(there), NUPA_VIEW_KEPT);
		CHECK_EQ(nupa_region_find(fabric, region, &info), 0);
		CHECK_EQ(info.mapped, 1);
		CHECK_EQ(nupa_view_of_region(fabric, region, 0, &none, why, sizeof(why)),
			 -ENETDOWN);
		CHECK(strstr(why, "a link between host 0 and its memory is down"));
		set_link(fabric, port, NUPA_PORT_ACTIVE);
		CHECK_EQ(nupa_view_lost(here), NUPA_VIEW_LINK_DOWN);
		nupa_view_free(here);
		here = viewed_map(fabric, region, 0);
		CHECK_EQ(words(here)[1], OURS);
		nupa_view_free(here);
		nupa_view_free(there);
		nupa_fabric_put(fabric);
	}
}

/* Its memory is at the switch, not behind the owner's link. */
TEST(a_port_of_the_owner_takes_no_windows_of_others)
{
	struct nupa_fabric *fabric = viewed_fabric();
	const uint64_t region = viewed_region(fabric, PAGE, NUPA_COHERENT_HARDWARE);
	struct nupa_view *there = viewed_map(fabric, region, 1);

	set_link(fabric, 0, NUPA_PORT_DOWN);
	words(there)[0] = OURS;
	CHECK_EQ(nupa_view_lost(there), NUPA_VIEW_KEPT);
	set_link(fabric, 3, NUPA_PORT_DOWN);
	check_lost(there);
	nupa_view_free(there);
	nupa_fabric_put(fabric);
}

TEST(a_cache_is_lost_with_what_it_has_not_flushed)
{
	struct nupa_fabric *fabric = viewed_fabric();
	const uint64_t region = viewed_region(fabric, PAGE, NUPA_COHERENT_SOFTWARE);
	struct nupa_view *here = viewed_map(fabric, region, 0),
			 *there = viewed_map(fabric, region, 1);

	words(here)[0] = OURS;
	CHECK_EQ(nupa_view_flush(here, 0, 8), 0);
	words(here)[8] = OURS;
	set_link(fabric, 0, NUPA_PORT_DOWN);
	check_lost(here);
	CHECK_EQ(nupa_view_flush(here, 0, PAGE), -ESTALE);
	CHECK_EQ(nupa_view_invalidate(here, 0, PAGE), -ESTALE);
	CHECK_EQ(words(here)[8], ONES);
	CHECK_EQ(nupa_view_invalidate(there, 0, PAGE), 0);
	CHECK_EQ(words(there)[0], OURS);
	CHECK_EQ(words(there)[8], 0);
	nupa_view_free(here);
	nupa_view_free(there);
	nupa_fabric_put(fabric);
}

TEST(a_flap_that_nobody_saw_is_a_loss_too)
{
	struct nupa_fabric *fabric = viewed_fabric();
	const uint64_t region = viewed_region(fabric, PAGE, NUPA_COHERENT_HARDWARE);
	struct nupa_view *here = viewed_map(fabric, region, 0);

	CHECK_EQ(nupa_fabric_set_port(fabric, 1, NUPA_PORT_DOWN), 0);
	set_link(fabric, 1, NUPA_PORT_ACTIVE);
	check_lost(here);
	nupa_view_free(here);
	nupa_fabric_put(fabric);
}

TEST(a_port_that_names_no_peer_is_down)
{
	struct nupa_fabric *fabric = viewed_fabric();
	uint32_t downs;

	CHECK(nupa_region_linked(fabric, 0, 1, &downs));
	CHECK_EQ(downs, 0);
	CHECK(!nupa_region_linked(fabric, 2, 0, &downs));
	CHECK(!nupa_region_linked(fabric, 0, UINT32_MAX, &downs));
	nupa_store_relaxed(&fabric->ports[0].peer, UINT32_MAX);
	CHECK(!nupa_region_linked(fabric, 0, 0, &downs));
	nupa_fabric_put(fabric);
}

TEST(a_region_that_is_at_no_switch_is_damaged)
{
	struct nupa_fabric *fabric = viewed_fabric();
	const uint64_t region = viewed_region(fabric, PAGE, NUPA_COHERENT_HARDWARE);
	struct nupa_region_info info;

	CHECK_EQ(nupa_region_find(fabric, region, &info), 0);
	CHECK_EQ(info.home, 0);
	nupa_store_release(&region_rows(fabric)[0].body.home, 2);
	CHECK_EQ(nupa_region_find(fabric, region, &info), -EUCLEAN);
	nupa_fabric_put(fabric);
}

/* --- loads while it happens ------------------------------------------------------ */

TEST(loads_under_way_see_the_data_then_ones)
{
	struct nupa_fabric *fabric = viewed_fabric();
	const uint64_t region = viewed_region(fabric, REGION_BYTES, NUPA_COHERENT_HARDWARE);

	for (uint32_t round = 0; round < 20; round++) {
		struct nupa_view *view = viewed_map(fabric, region, 0);
		struct under_way way = { .view = view, .words = WORDS };
		pthread_t thread;

		viewed_fill(view, OURS);
		CHECK_EQ(pthread_create(&thread, NULL, load_until_ones, &way), 0);
		while (!nupa_load_acquire(&way.started))
			sched_yield();
		set_link(fabric, 0, NUPA_PORT_DOWN);
		check_lost(view);
		pthread_join(thread, NULL);
		set_link(fabric, 0, NUPA_PORT_ACTIVE);
		nupa_view_free(view);
	}
	nupa_fabric_put(fabric);
}

struct mapper {
	struct nupa_fabric *fabric;
	uint64_t region;
	uint32_t mapped, end;
};

static void *map_and_let_go(void *arg)
{
	struct mapper *mapper = arg;

	while (!nupa_load_acquire(&mapper->end)) {
		struct nupa_view *view;
		char reason[256];
		const int rc = nupa_view_of_region(mapper->fabric, mapper->region, 0, &view, reason,
						   sizeof(reason));

		CHECK(rc == 0 || rc == -ENETDOWN);
		if (rc)
			continue;
		nupa_fetch_add_seq(&mapper->mapped, 1);
		nupa_view_free(view);
	}
	return NULL;
}

TEST(no_window_that_is_being_mapped_is_overlooked)
{
	struct mapper mapper = { .fabric = viewed_fabric() };
	const uint64_t until_ns = test_now_ns() + WAIT_NS;
	struct nupa_region_info info;
	pthread_t threads[2];

	mapper.region = viewed_region(mapper.fabric, PAGE, NUPA_COHERENT_HARDWARE);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, map_and_let_go, &mapper), 0);
	for (uint32_t round = 0; round < 50; round++) {
		const uint32_t before = nupa_load_acquire(&mapper.mapped);

		while (nupa_load_acquire(&mapper.mapped) == before) {
			CHECK(test_now_ns() < until_ns);
			sched_yield();
		}
		set_link(mapper.fabric, round % 2, NUPA_PORT_DOWN);
		/* No other process has a window meanwhile. */
		for (uint32_t look = 0; look < 10; look++) {
			struct nupa_view *view = NULL;

			CHECK_EQ(nupa_view_of_region(mapper.fabric, mapper.region, 0, &view, why,
						     sizeof(why)),
				 -ENETDOWN);
			CHECK_EQ(nupa_region_await_links(mapper.fabric), 0);
		}
		set_link(mapper.fabric, round % 2, NUPA_PORT_ACTIVE);
	}
	nupa_store_release(&mapper.end, 1);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	CHECK_EQ(nupa_region_find(mapper.fabric, mapper.region, &info), 0);
	CHECK_EQ(info.mapped, 0);
	nupa_fabric_put(mapper.fabric);
}

/* --- processes ------------------------------------------------------------------- */

#if !defined(__SANITIZE_THREAD__) /* which allows a child of threads none of its own */
static void say(int fd, char word)
{
	CHECK_EQ(write(fd, &word, 1), 1);
}

static void hear(int fd, char word)
{
	char heard = 0;

	CHECK_EQ(read(fd, &heard, 1), 1);
	CHECK_EQ(heard, word);
}

static void map_in_child(struct nupa_fabric *fabric, uint64_t region, int in, int out)
{
	struct nupa_view *view = viewed_map(fabric, region, 1);

	viewed_fill(view, OURS);
	say(out, 'm');
	hear(in, 'd'); /* the port is down, and that was waited for */
	check_lost(view);
	nupa_view_free(view);
	_exit(0);
}

TEST(a_process_that_is_stopped_is_waited_for_and_told_of)
{
	struct nupa_fabric *fabric = viewed_fabric();
	const uint64_t region = viewed_region(fabric, REGION_BYTES, NUPA_COHERENT_HARDWARE);
	int to[2], from[2], status;
	pid_t child;

	CHECK(pipe(to) == 0 && pipe(from) == 0);
	child = fork();
	if (child == 0)
		map_in_child(fabric, region, to[0], from[1]);
	hear(from[0], 'm');
	CHECK_EQ(kill(child, SIGSTOP), 0);
	CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
	CHECK_EQ(nupa_fabric_set_port(fabric, 3, NUPA_PORT_DOWN), 0);
	CHECK_EQ(nupa_region_await_links(fabric), -ETIMEDOUT);
	CHECK_EQ(kill(child, SIGCONT), 0);
	CHECK_EQ(nupa_region_await_links(fabric), 0);
	say(to[1], 'd');
	CHECK_CHILD(child);
	for (int i = 0; i < 2; i++) {
		close(to[i]);
		close(from[i]);
	}
	nupa_fabric_put(fabric);
}

TEST(a_process_that_died_is_not_waited_for)
{
	struct nupa_fabric *fabric = viewed_fabric();
	const uint64_t region = viewed_region(fabric, REGION_BYTES, NUPA_COHERENT_HARDWARE);
	int to[2], from[2], status;
	pid_t child;

	CHECK(pipe(to) == 0 && pipe(from) == 0);
	child = fork();
	if (child == 0)
		map_in_child(fabric, region, to[0], from[1]);
	hear(from[0], 'm');
	CHECK_EQ(kill(child, SIGKILL), 0);
	CHECK_EQ(waitpid(child, &status, 0), child);
	set_link(fabric, 3, NUPA_PORT_DOWN);
	for (int i = 0; i < 2; i++) {
		close(to[i]);
		close(from[i]);
	}
	nupa_fabric_put(fabric);
}
#endif

/* --- followers ------------------------------------------------------------------- */

struct follower {
	struct nupa_fabric *fabric;
	uint32_t place, epoch, acted, end;
};

static void *follow(void *arg)
{
	struct follower *follower = arg;
	const struct nupa_port *port = nupa_fabric_port(follower->fabric, 0);

	while (!nupa_load_acquire(&follower->end)) {
		if (nupa_load_acquire(&port->state) == NUPA_PORT_DOWN)
			nupa_store_release(&follower->acted, 1);
		CHECK_EQ(nupa_region_heed(follower->fabric, follower->place, follower->epoch), 0);
		CHECK_EQ(nupa_region_await_epoch(follower->fabric, &follower->epoch, FOLLOW_MS), 0);
	}
	return NULL;
}

TEST(a_caller_that_sets_a_port_returns_when_its_followers_have_acted)
{
	struct nupa_fabric *fabric = viewed_fabric();
	struct follower follower = { .fabric = fabric };
	struct nupa_region_info info;
	pthread_t thread;

	CHECK_EQ(nupa_region_follow(fabric, &follower.place), 0);
	CHECK_EQ(nupa_region_await_epoch(fabric, &follower.epoch, 0), 0);
	CHECK_EQ(pthread_create(&thread, NULL, follow, &follower), 0);
	set_link(fabric, 0, NUPA_PORT_DOWN);
	CHECK_EQ(nupa_load_acquire(&follower.acted), 1);
	nupa_store_release(&follower.end, 1);
	CHECK_EQ(nupa_fabric_set_port(fabric, 0, NUPA_PORT_ACTIVE), 0); /* wakes it */
	pthread_join(thread, NULL);
	CHECK_EQ(nupa_region_map_end(fabric, follower.place), 0);
	CHECK_EQ(nupa_region_heed(fabric, follower.place, 1), -EINVAL);
	set_link(fabric, 0, NUPA_PORT_DOWN); /* no process follows */
	/* No region has this id. */
	CHECK_EQ(nupa_region_find(fabric, UINT64_MAX, &info), -ESTALE);
	nupa_fabric_put(fabric);
}
