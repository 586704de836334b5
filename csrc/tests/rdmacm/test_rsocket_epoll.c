/* SPDX-License-Identifier: BSD-3-Clause
 * repoll_create, repoll_ctl, repoll_wait: sets of rsockets and ordinary descriptors. */
#include "tests/support/end.h"
#include "tests/rdmacm/rs_end.h"

#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#define LONG_MS 30000

static struct nupa_fabric *fabric;
static int pair[2], set;

static void open_all(void)
{
	fabric = test_fabric();
	rs_use_fabric(fabric);
	rs_pair(pair);
	set = repoll_create(EPOLL_CLOEXEC);
	CHECK(set >= 0);
}

static void close_all(void)
{
	CHECK_EQ(rclose(set), 0);
	CHECK_EQ(rclose(pair[0]), 0);
	CHECK_EQ(rclose(pair[1]), 0);
	nupa_fabric_put(fabric);
}

static void control(int op, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.u64 = 100 + (uint64_t)fd };

	CHECK_EQ(repoll_ctl(set, op, fd, &event), 0);
}

static void expect_error(int got, int error)
{
	CHECK_EQ(got, -1);
	CHECK_EQ(errno, error);
}

static void expect_one(int fd, uint32_t events)
{
	struct epoll_event got[4];

	CHECK_EQ(repoll_wait(set, got, 4, LONG_MS), 1);
	CHECK_EQ(got[0].data.u64, 100 + (uint64_t)fd);
	CHECK_EQ(got[0].events, events);
}

static void expect_none(void)
{
	struct epoll_event got[4];

	CHECK_EQ(repoll_wait(set, got, 4, 0), 0);
}

TEST(a_set_reports_rsockets_and_ordinary_descriptors_while_they_are_ready)
{
	struct epoll_event got[2];
	int pipe_fd[2];
	char byte;

	open_all();
	CHECK_EQ(pipe(pipe_fd), 0);
	control(EPOLL_CTL_ADD, pair[1], EPOLLIN);
	control(EPOLL_CTL_ADD, pipe_fd[0], EPOLLIN);
	expect_none();
	CHECK_EQ(rsend(pair[0], "x", 1, 0), 1);
	expect_one(pair[1], EPOLLIN);
	expect_one(pair[1], EPOLLIN); /* level-triggered */
	CHECK_EQ(write(pipe_fd[1], "y", 1), 1);
	CHECK_EQ(repoll_wait(set, got, 1, LONG_MS), 1); /* by turns */
	CHECK_EQ(repoll_wait(set, &got[1], 1, LONG_MS), 1);
	CHECK(got[0].data.u64 != got[1].data.u64);
	CHECK_EQ(rrecv(pair[1], &byte, 1, 0), 1);
	expect_one(pipe_fd[0], EPOLLIN);
	CHECK_EQ(close(pipe_fd[0]), 0); /* leaves the set, as in the kernel */
	CHECK_EQ(close(pipe_fd[1]), 0);
	expect_none();
	control(EPOLL_CTL_MOD, pair[1], EPOLLOUT);
	expect_one(pair[1], EPOLLOUT);
	close_all();
}

TEST(a_descriptor_with_oneshot_rests_until_it_is_modified)
{
	open_all();
	control(EPOLL_CTL_ADD, pair[1], EPOLLIN | EPOLLONESHOT);
	CHECK_EQ(rsend(pair[0], "x", 1, 0), 1);
	expect_one(pair[1], EPOLLIN);
	expect_none();
	control(EPOLL_CTL_MOD, pair[1], EPOLLIN | EPOLLONESHOT);
	expect_one(pair[1], EPOLLIN);
	expect_none();
	close_all();
}

TEST(calls_fail_as_epolls_do)
{
	struct epoll_event event = { .events = EPOLLIN };
	int closed;

	open_all();
	expect_error(repoll_create(EPOLL_CLOEXEC << 1), EINVAL);
	expect_error(repoll_ctl(set, EPOLL_CTL_MOD, pair[0], &event), ENOENT);
	expect_error(repoll_ctl(set, EPOLL_CTL_DEL, pair[0], NULL), ENOENT);
	expect_error(repoll_ctl(set, EPOLL_CTL_ADD, pair[0], NULL), EFAULT);
	expect_error(repoll_ctl(set, EPOLL_CTL_ADD, set, &event), EINVAL);
	expect_error(repoll_ctl(set, EPOLL_CTL_ADD, -1, &event), EBADF);
	expect_error(repoll_ctl(set, 0, pair[0], &event), EINVAL);
	expect_error(repoll_ctl(pair[0], EPOLL_CTL_ADD, pair[1], &event), EBADF);
	control(EPOLL_CTL_ADD, pair[0], EPOLLIN);
	expect_error(repoll_ctl(set, EPOLL_CTL_ADD, pair[0], &event), EEXIST);
	CHECK_EQ(repoll_ctl(set, EPOLL_CTL_DEL, pair[0], NULL), 0);
	expect_error(repoll_wait(set, &event, 0, 0), EINVAL);
	expect_error(repoll_wait(pair[0], &event, 1, 0), EBADF);
	closed = repoll_create(0);
	CHECK_EQ(rclose(closed), 0);
	expect_error(repoll_wait(closed, &event, 1, 0), EBADF);
	expect_error(rclose(closed), EBADF);
	close_all();
}

static void *wait_long(void *into)
{
	struct epoll_event event;
	int *got = into;

	*got = repoll_wait(set, &event, 1, LONG_MS);
	if (*got < 0)
		*got = -errno;
	return NULL;
}

static pthread_t start_waiting(int *got)
{
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, wait_long, got), 0);
	return thread;
}

TEST(a_thread_that_waits_sees_what_another_adds)
{
	pthread_t threads[2];
	int got[2];

	open_all();
	CHECK_EQ(rsend(pair[0], "x", 1, 0), 1);
	for (int i = 0; i < 2; i++)
		threads[i] = start_waiting(&got[i]);
	control(EPOLL_CTL_ADD, pair[1], EPOLLIN);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
		CHECK_EQ(got[i], 1);
	}
	close_all();
}

TEST(closing_a_set_ends_the_waits_of_other_threads)
{
	struct epoll_event event;
	pthread_t threads[2];
	int got[2];

	open_all();
	control(EPOLL_CTL_ADD, pair[1], EPOLLIN);
	for (int i = 0; i < 2; i++)
		threads[i] = start_waiting(&got[i]);
	CHECK_EQ(repoll_wait(set, &event, 1, 50), 0); /* the others wait by now, most likely */
	CHECK_EQ(rclose(set), 0);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
		CHECK_EQ(got[i], -EBADF);
	}
	CHECK_EQ(rclose(pair[0]), 0);
	CHECK_EQ(rclose(pair[1]), 0);
	nupa_fabric_put(fabric);
}

TEST(more_descriptors_than_the_set_began_with_are_all_reported)
{
	enum { MANY = 100 };
	struct epoll_event got[MANY];
	int fds[MANY][2];

	open_all();
	control(EPOLL_CTL_ADD, pair[0], EPOLLIN);
	for (int i = 0; i < MANY; i++) {
		CHECK_EQ(pipe(fds[i]), 0);
		control(EPOLL_CTL_ADD, fds[i][0], EPOLLIN);
		CHECK_EQ(write(fds[i][1], "x", 1), 1);
	}
	CHECK_EQ(repoll_wait(set, got, MANY, LONG_MS), MANY);
	for (int i = 0; i < MANY; i++) {
		CHECK_EQ(close(fds[i][0]), 0);
		CHECK_EQ(close(fds[i][1]), 0);
	}
	close_all();
}
