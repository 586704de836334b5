/* SPDX-License-Identifier: BSD-3-Clause
 * rsockets and threads: full duplex, closing under others' feet, lookups of what is going. */
#include "tests/support/end.h"
#include "tests/rdmacm/rs_end.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define STREAM_BYTES (8u << 20)
#define PIECE_BYTES 100000u
#define CHURN_THREADS 4
#define CHURN_ROUNDS 15

static pthread_t start(void *(*run)(void *), void *argument)
{
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, run, argument), 0);
	return thread;
}

static void join(pthread_t thread)
{
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

static struct nupa_fabric *use_new_fabric(void)
{
	struct nupa_fabric *fabric = test_fabric();

	rs_use_fabric(fabric);
	return fabric;
}

/* --- full duplex ---------------------------------------------------------------------- */

struct half {
	int fd;
	uint8_t stream;
	uint64_t seed;
};

static void *sends(void *argument)
{
	struct half *half = argument;
	uint64_t at = 0, state = half->seed;
	uint8_t *piece = malloc(PIECE_BYTES);

	CHECK(piece);
	while (at < STREAM_BYTES) {
		size_t n = test_random(&state) % 4 ? test_random(&state) % 1500 + 1
						   : test_random(&state) % PIECE_BYTES + 1;

		if (n > STREAM_BYTES - at)
			n = STREAM_BYTES - at;
		rs_pattern(piece, n, at, half->stream);
		CHECK_EQ(rsend(half->fd, piece, n, 0), n);
		at += n;
	}
	CHECK_EQ(rshutdown(half->fd, SHUT_WR), 0);
	free(piece);
	return NULL;
}

static void *receives(void *argument)
{
	struct half *half = argument;
	uint64_t at = 0, state = half->seed;
	uint8_t *piece = malloc(PIECE_BYTES);

	CHECK(piece);
	for (;;) {
		ssize_t n = rrecv(half->fd, piece, test_random(&state) % PIECE_BYTES + 1, 0);

		CHECK(n >= 0);
		if (n == 0)
			break;
		CHECK(rs_is_pattern(piece, (size_t)n, at, half->stream));
		at += (uint64_t)n;
	}
	CHECK_EQ(at, STREAM_BYTES);
	free(piece);
	return NULL;
}

TEST(four_threads_use_both_directions_at_once)
{
	struct nupa_fabric *fabric = use_new_fabric();
	uint64_t seed = test_seed();
	pthread_t threads[4];
	int fds[2];

	rs_pair(fds);
	struct half halves[4] = { { fds[0], 1, seed | 1 },
				  { fds[1], 1, seed | 2 },
				  { fds[1], 2, seed | 4 },
				  { fds[0], 2, seed | 8 } };

	for (int i = 0; i < 4; i++)
		threads[i] = start(i % 2 ? receives : sends, &halves[i]);
	for (int i = 0; i < 4; i++)
		join(threads[i]);
	CHECK_EQ(rclose(fds[0]), 0);
	CHECK_EQ(rclose(fds[1]), 0);
	nupa_fabric_put(fabric);
}

/* --- closing while others wait -------------------------------------------------------- */

/* A late look-up may find that the number is another file's by now. */
static bool says_closed(void)
{
	return errno == EBADF || errno == ENOTSOCK;
}

static void *waits_to_receive(void *argument)
{
	char byte;

	CHECK_EQ(rrecv(*(int *)argument, &byte, 1, 0), -1);
	CHECK(says_closed());
	return NULL;
}

static void *waits_to_send(void *argument)
{
	static const char bytes[PIECE_BYTES];

	while (rsend(*(int *)argument, bytes, sizeof(bytes), 0) > 0)
		;
	CHECK(says_closed());
	return NULL;
}

static void *waits_to_accept(void *argument)
{
	CHECK_EQ(raccept(*(int *)argument, NULL, NULL), -1);
	CHECK(says_closed() || errno == EINVAL);
	return NULL;
}

static void *polls_until_it_is_gone(void *argument)
{
	struct pollfd fd = { .fd = *(int *)argument, .events = POLLIN };

	while (rpoll(&fd, 1, 1000) >= 0 && !fd.revents)
		;
	CHECK(fd.revents & (POLLNVAL | POLLIN | POLLHUP | POLLERR));
	return NULL;
}

TEST(closing_ends_the_waits_of_all_other_threads)
{
	struct nupa_fabric *fabric = use_new_fabric();

	for (int round = 0; round < 5; round++) {
		pthread_t threads[4];
		uint16_t port;
		int fds[2], listener = rs_listener(&port);

		rs_pair(fds);
		threads[0] = start(waits_to_receive, &fds[0]);
		threads[1] = start(waits_to_send, &fds[0]);
		threads[2] = start(waits_to_accept, &listener);
		threads[3] = start(polls_until_it_is_gone, &fds[1]);
		usleep(1000 * (useconds_t)round); /* any order of events is good */
		CHECK_EQ(rclose(listener), 0);
		CHECK_EQ(rclose(fds[0]), 0);
		for (int i = 0; i < 4; i++)
			join(threads[i]);
		CHECK_EQ(rclose(fds[1]), 0);
	}
	nupa_fabric_put(fabric);
}

/* --- connections come and go ----------------------------------------------------------- */

static uint16_t churn_port;
static bool churn_over;

static void *connects_and_closes(void *unused)
{
	for (int round = 0; round < CHURN_ROUNDS; round++) {
		char bytes[100] = "";
		int fd = rsocket(AF_INET, SOCK_STREAM, 0);

		CHECK(fd >= 0);
		CHECK_EQ(rs_connect(fd, "10.0.0.1", churn_port), 0);
		CHECK_EQ(rsend(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
		CHECK_EQ(rrecv(fd, bytes, sizeof(bytes), MSG_WAITALL), sizeof(bytes));
		CHECK_EQ(rclose(fd), 0);
	}
	return unused;
}

static void *echoes(void *argument)
{
	int listener = *(int *)argument;

	for (int round = 0; round < CHURN_ROUNDS; round++) {
		char bytes[100];
		int fd = raccept(listener, NULL, NULL);

		CHECK(fd >= 0);
		CHECK_EQ(rrecv(fd, bytes, sizeof(bytes), MSG_WAITALL), sizeof(bytes));
		CHECK_EQ(rsend(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
		CHECK_EQ(rrecv(fd, bytes, 1, 0), 0);
		CHECK_EQ(rclose(fd), 0);
	}
	return NULL;
}

/* Calls on descriptors that may be another thread's, or closed. */
static void *looks_at_all(void *unused)
{
	while (!__atomic_load_n(&churn_over, __ATOMIC_ACQUIRE))
		for (int fd = 0; fd < 64; fd++) {
			struct pollfd polled = { .fd = fd, .events = POLLIN };
			int value;
			socklen_t bytes = sizeof(value);

			(void)rgetsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &bytes);
			(void)rpoll(&polled, 1, 0);
		}
	return unused;
}

TEST(connections_come_and_go_in_many_threads)
{
	struct nupa_fabric *fabric = use_new_fabric();
	pthread_t clients[CHURN_THREADS], servers[CHURN_THREADS], observer;
	int listener = rs_listener(&churn_port);

	observer = start(looks_at_all, NULL);
	for (int i = 0; i < CHURN_THREADS; i++) {
		servers[i] = start(echoes, &listener);
		clients[i] = start(connects_and_closes, NULL);
	}
	for (int i = 0; i < CHURN_THREADS; i++) {
		join(clients[i]);
		join(servers[i]);
	}
	__atomic_store_n(&churn_over, true, __ATOMIC_RELEASE);
	join(observer);
	CHECK_EQ(rclose(listener), 0);
	nupa_fabric_put(fabric);
}
