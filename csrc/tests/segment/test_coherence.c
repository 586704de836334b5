/* SPDX-License-Identifier: BSD-3-Clause
 * Two kernels whose memory is not coherent (apart.h), and all that ordinary programs do between
 * them.  It works, and it fails as soon as any one flush or fetch is left out. */
#include "tests/segment/apart_work.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SILENCE_NS UINT64_C(1700000000) /* a process without beats is dead by then */
#define AT_A_TIME 12u

/* Nothing is said for longer than the dead are waited for; then all goes on. */
static void be_silent(struct kernel *k)
{
	const struct timespec pause = { .tv_nsec = 10000000 };
	const uint64_t until_ns = test_now_ns() + SILENCE_NS;

	while (test_now_ns() < until_ns)
		nanosleep(&pause, NULL);
	converse(k, SMALL_BYTES, AT_ONCE);
}

/* The other one is killed: what is sent to it then fails. */
static void lose_peer(struct kernel *k)
{
	char theirs;

	CHECK_EQ(recv(k->socket, &theirs, 1, 0), 0);
	end_start(k->end, IBV_WR_SEND, 9, 0, SMALL_BYTES);
	CHECK_EQ(await(k->end->send_cq, IBV_WC_RETRY_EXC_ERR).wr_id, 9);
	end_close(k->end);
	k->end = NULL;
}

/* Twice: what is left in the rings is of their first lap, as what comes next is. */
static void come_and_go(struct kernel *k)
{
	for (int i = 0; i < 2; i++) {
		join(k);
		converse(k, SMALL_BYTES, AT_ONCE);
		leave(k);
	}
}

static void work(struct kernel *k)
{
	begin_step(k);
	join(k);
	converse(k, SMALL_BYTES, SMALL_MESSAGES);
	converse(k, LARGE_BYTES, LARGE_MESSAGES);
	reach_into_memory(k);
	see_ports(k);
	see_counters(k);
	connect_by_cm(k);
	pass_frame(k);
}

static struct kernel kernel_of(int fd, int socket, int host, uint64_t id,
			       struct apart_damage damage)
{
	const bool whole = damage.point == NUPA_POINTS;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	return (struct kernel){
		.fabric = apart_open(fd, id, damage),
		.socket = socket,
		.host = host,
		.patience_s = whole ? 20 : 3,
	};
}

/* Host 0, which stays. */
static void run_first(int fd, const int sockets[2], struct apart_damage damage)
{
	struct kernel k = kernel_of(fd, sockets[0], 0, 1, damage);

	work(&k);
	be_silent(&k);
	lose_peer(&k);
	k.socket = sockets[1];
	meet(&k);
	come_and_go(&k);
	nupa_fabric_put(k.fabric);
	exit(0);
}

/* Host 1, which is killed. */
static void run_second(int fd, int socket, struct apart_damage damage)
{
	struct kernel k = kernel_of(fd, socket, 1, 2, damage);

	work(&k);
	be_silent(&k);
	raise(SIGKILL);
}

/* Host 1 after that, as another kernel. */
static void run_third(int fd, int socket, struct apart_damage damage)
{
	struct kernel k;
	char first;

	CHECK_EQ(recv(socket, &first, 1, MSG_PEEK), 1);
	k = kernel_of(fd, socket, 1, 3, damage);
	meet(&k);
	come_and_go(&k);
	nupa_fabric_put(k.fabric);
	exit(0);
}

/* A process that ends with 0 if all went well. */
static pid_t start(struct apart_damage damage)
{
	const struct rlimit none = { 0 };
	int fd, second[2], third[2];
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid)
		return pid;
	setrlimit(RLIMIT_CORE, &none);
	if (damage.point != NUPA_POINTS)
		CHECK(freopen("/dev/null", "w", stderr));
	fd = apart_create();
	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, second), 0);
	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, third), 0);
	if (fork() == 0) {
		close(second[0]);
		close(third[0]);
		close(third[1]);
		run_second(fd, second[1], damage);
	}
	close(second[1]);
	if (fork() == 0) {
		close(second[0]);
		close(third[0]);
		run_third(fd, third[1], damage);
	}
	close(third[1]);
	run_first(fd, (int[]){ second[0], third[0] }, damage);
	return 0;
}

TEST(two_kernels_work_together_by_flush_and_fetch)
{
	int status;

	CHECK(waitpid(start((struct apart_damage){ NUPA_POINTS, false }), &status, 0) > 0);
	CHECK_EQ(status, 0);
}

/* EMPTY is fetched as the lines and heads that it consists of. */
static bool has(struct apart_damage damage)
{
	return damage.point != NUPA_POINT_EMPTY || !damage.fetch;
}

TEST(without_any_one_flush_or_fetch_they_do_not)
{
	pid_t running[2 * NUPA_POINTS] = { 0 };
	uint32_t started = 0, ended = 0, survived = 0;

	while (ended < 2 * NUPA_POINTS) {
		int status;

		if (started < 2 * NUPA_POINTS && started - ended < AT_A_TIME) {
			struct apart_damage damage = { started / 2, started % 2 };

			if (has(damage))
				running[started] = start(damage);
			else
				ended++;
			started++;
			continue;
		}
		pid_t pid = wait(&status);

		CHECK(pid > 0);
		for (uint32_t i = 0; i < started; i++)
			if (running[i] == pid && status == 0) {
				fprintf(stderr, "point %u: the work passes without its %s\n", i / 2,
					i % 2 ? "fetch" : "flush");
				survived++;
			}
		ended++;
	}
	CHECK_EQ(survived, 0);
}
