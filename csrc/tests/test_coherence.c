/* SPDX-License-Identifier: BSD-3-Clause
 * Two kernels whose memory is not coherent (apart.h), and all that ordinary programs do between
 * them: it works, and it fails as soon as any one flush or fetch is left out. */
#include "apart.h"
#include "cm_end.h"
#include "net.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SMALL_BYTES 20u
#define SMALL_MESSAGES 50u /* three laps of the ring */
#define LARGE_BYTES 49152u
#define LARGE_MESSAGES 30u /* three laps of the DMA ring */
#define AT_ONCE 10u
#define FRAME_BYTES 900u
#define CM_PORT 7471u
#define SILENCE_NS UINT64_C(1700000000) /* who does not beat is dead by then */
#define AT_A_TIME 7u

/* One of the two; the socket leads to the other. */
struct kernel {
	struct nupa_fabric *fabric;
	struct end *end;
	int socket, host;
	unsigned int patience_s; /* for one step */
};

/* --- steps --------------------------------------------------------------------------- */

/* Each has to be over soon. */
static void begin_step(const struct kernel *k)
{
	alarm(k->patience_s);
}

static void swap(const struct kernel *k, const void *mine, void *theirs, size_t bytes)
{
	CHECK_EQ(send(k->socket, mine, bytes, MSG_NOSIGNAL), bytes);
	CHECK_EQ(recv(k->socket, theirs, bytes, MSG_WAITALL), bytes);
}

/* Both are here. */
static void meet(const struct kernel *k)
{
	char mine = 1, theirs;

	swap(k, &mine, &theirs, 1);
	begin_step(k);
}

static struct ibv_wc await(struct ibv_cq *cq, enum ibv_wc_status status)
{
	const struct timespec pause = { .tv_nsec = 50000 };
	struct ibv_wc wc;
	int n;

	while ((n = nupa_poll_cq(cq, 1, &wc)) == 0)
		nanosleep(&pause, NULL);
	CHECK_EQ(n, 1);
	CHECK_EQ(wc.status, status);
	return wc;
}

static void join(struct kernel *k, enum ibv_qp_type type)
{
	struct end_options options = end_defaults;
	struct end_address peer;

	options.type = type;
	options.host = k->host;
	options.memory_bytes = AT_ONCE * LARGE_BYTES;
	k->end = end_open(k->fabric, &options);
	swap(k, &k->end->self, &peer, sizeof(peer));
	end_connect(k->end, &peer);
	meet(k);
}

static void leave(struct kernel *k)
{
	end_close(k->end);
	k->end = NULL;
	meet(k);
}

static void pour_out(struct kernel *k, uint32_t bytes, uint32_t messages)
{
	for (uint32_t sent = 0; sent < messages; sent += AT_ONCE) {
		for (uint32_t i = 0; i < AT_ONCE; i++)
			pattern_fill(k->end->memory + i * bytes, bytes, sent + i);
		meet(k);
		for (uint32_t i = 0; i < AT_ONCE; i++)
			end_start(k->end, IBV_WR_SEND, i, i * bytes, bytes);
		for (uint32_t i = 0; i < AT_ONCE; i++)
			CHECK_EQ(await(k->end->send_cq, IBV_WC_SUCCESS).wr_id, i);
		meet(k);
	}
}

static void take_in(struct kernel *k, uint32_t bytes, uint32_t messages)
{
	for (uint32_t taken = 0; taken < messages; taken += AT_ONCE) {
		for (uint32_t i = 0; i < AT_ONCE; i++)
			end_post_recv(k->end, i, i * bytes, bytes);
		meet(k);
		for (uint32_t i = 0; i < AT_ONCE; i++) {
			struct ibv_wc wc = await(k->end->recv_cq, IBV_WC_SUCCESS);

			CHECK_EQ(wc.wr_id, i);
			CHECK_EQ(wc.byte_len, bytes);
			CHECK_PATTERN(k->end->memory + i * bytes, bytes, taken + i);
		}
		meet(k);
	}
}

static void converse(struct kernel *k, uint32_t bytes, uint32_t messages)
{
	for (int host = 0; host < 2; host++)
		if (host == k->host)
			pour_out(k, bytes, messages);
		else
			take_in(k, bytes, messages);
}

static void reach_into_memory(struct kernel *k)
{
	struct request add = request_of(k->end, IBV_WR_ATOMIC_FETCH_AND_ADD, 3, 0, 8);
	uint64_t *word = (uint64_t *)(void *)k->end->memory;

	pattern_fill(k->end->memory, LARGE_BYTES, 7 + (uint32_t)k->host);
	meet(k);
	if (k->host == 0) {
		end_start(k->end, IBV_WR_RDMA_WRITE, 1, 0, LARGE_BYTES);
		CHECK_EQ(await(k->end->send_cq, IBV_WC_SUCCESS).wr_id, 1);
	}
	meet(k);
	CHECK_PATTERN(k->end->memory, LARGE_BYTES, 7);
	pattern_fill(k->end->memory, LARGE_BYTES, 17 + (uint32_t)k->host);
	meet(k);
	if (k->host == 1) {
		end_start(k->end, IBV_WR_RDMA_READ, 2, 0, LARGE_BYTES);
		CHECK_EQ(await(k->end->send_cq, IBV_WC_SUCCESS).wr_id, 2);
		CHECK_PATTERN(k->end->memory, LARGE_BYTES, 17);
	}
	meet(k);
	*word = 40;
	meet(k);
	if (k->host == 1) {
		add.wr.wr.atomic.compare_add = 2;
		end_post(k->end, &add);
		CHECK_EQ(await(k->end->send_cq, IBV_WC_SUCCESS).wr_id, 3);
	}
	meet(k);
	CHECK_EQ(*word, k->host == 0 ? 42 : 40);
}

/* By the word of the peer's slot, which nobody tells us to look at. */
static void see_ports(struct kernel *k)
{
	const uint32_t port = test_fabric_port(1);

	meet(k);
	if (k->host == 0) {
		CHECK_EQ(nupa_fabric_set_port(k->fabric, port, NUPA_PORT_DOWN), 0);
		meet(k);
		CHECK_EQ(nupa_fabric_set_port(k->fabric, port, NUPA_PORT_ACTIVE), 0);
	} else {
		CHECK_EQ(nupa_fabric_set_port(k->fabric, port, NUPA_PORT_DOWN), -EREMOTE);
		end_expect_event(k->end, IBV_EVENT_PORT_ERR);
		meet(k);
		end_expect_event(k->end, IBV_EVENT_PORT_ACTIVE);
	}
	meet(k);
}

static void count(struct kernel *k)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	uint32_t slot = (uint32_t)nupa_context_slot(k->end->context), theirs;
	struct nupa_flow_info flow = { 0 };

	swap(k, &slot, &theirs, sizeof(slot));
	begin_step(k);
	while (flow.xmit_bytes < SMALL_BYTES * SMALL_MESSAGES) {
		CHECK_EQ(nupa_fabric_flow(k->fabric, theirs, (uint32_t)k->host, &flow), 0);
		nanosleep(&pause, NULL);
	}
	meet(k);
}

static void connect_by_cm(struct kernel *k)
{
	struct cm_side side = cm_side_open(k->fabric, k->host);
	struct rdma_cm_id *id = cm_id(&side, RDMA_PS_TCP), *server;
	struct rdma_cm_event *event;

	if (k->host == 1) {
		CHECK_EQ(cm_bind(id, "10.0.0.2", CM_PORT), 0);
		CHECK_EQ(rdma_listen(id, 0), 0);
	}
	meet(k);
	if (k->host == 0) {
		cm_resolve(&side, id, "10.0.0.2", CM_PORT);
		cm_make_qp(&side, id);
		CHECK_EQ(rdma_connect(id, NULL), 0);
		cm_expect_ack(side.channel, id, RDMA_CM_EVENT_ESTABLISHED, 0);
	} else {
		event = cm_expect(side.channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
		server = event->id;
		cm_make_qp(&side, server);
		CHECK_EQ(rdma_accept(server, NULL), 0);
		CHECK_EQ(rdma_ack_cm_event(event), 0);
		cm_expect_ack(side.channel, server, RDMA_CM_EVENT_ESTABLISHED, 0);
		cm_expect_ack(side.channel, server, RDMA_CM_EVENT_DISCONNECTED, 0);
		cm_destroy(server);
	}
	if (k->host == 0)
		CHECK_EQ(rdma_disconnect(id), 0);
	meet(k);
	if (k->host == 0)
		cm_expect_ack(side.channel, id, RDMA_CM_EVENT_DISCONNECTED, 0);
	cm_destroy(id);
	cm_side_close(&side);
	meet(k);
}

/* --- the netdev ---------------------------------------------------------------------- */

static int frames[2]; /* a pipe */

static bool deliver(void *arg, const uint8_t *frame, uint32_t frame_bytes)
{
	const bool same =
	    frame_bytes == FRAME_BYTES && pattern_match(frame, FRAME_BYTES, 5) == FRAME_BYTES;

	(void)arg;
	return write(frames[1], &same, sizeof(same)) == sizeof(same);
}

static void carrier(void *arg, bool up)
{
	(void)arg;
	(void)up;
}

static void pass_frame(struct kernel *k)
{
	static const struct nupa_net_ops ops = { deliver, carrier };
	const struct timespec pause = { .tv_nsec = 100000 };
	struct nupa_net_siblings siblings = { 0 };
	char why[256] = "";
	struct nupa_net *net = nupa_net_open(k->fabric, (uint32_t)k->host, 0, false, &siblings,
					     &ops, NULL, why, sizeof(why));
	bool same = false, reached = false;

	CHECK(net);
	CHECK_EQ(pipe(frames), 0);
	meet(k);
	while (k->host == 0 && !reached) {
		nupa_net_lock(net);
		reached = nupa_net_reaches(net, 1);
		if (reached) {
			pattern_fill(nupa_net_room(net), FRAME_BYTES, 5);
			CHECK(nupa_net_send(net, 1, FRAME_BYTES));
		}
		nupa_net_unlock(net);
		nupa_net_flush(net);
		nanosleep(&pause, NULL);
	}
	if (k->host == 1) {
		CHECK_EQ(read(frames[0], &same, sizeof(same)), sizeof(same));
		CHECK(same);
	}
	meet(k);
	nupa_net_close(net);
	close(frames[0]);
	close(frames[1]);
}

/* --- life and death ------------------------------------------------------------------ */

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

static void work(struct kernel *k)
{
	begin_step(k);
	join(k, IBV_QPT_RC);
	converse(k, SMALL_BYTES, SMALL_MESSAGES);
	converse(k, LARGE_BYTES, LARGE_MESSAGES);
	reach_into_memory(k);
	see_ports(k);
	count(k);
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
	join(&k, IBV_QPT_RC);
	converse(&k, SMALL_BYTES, SMALL_MESSAGES);
	leave(&k);
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
	join(&k, IBV_QPT_RC);
	converse(&k, SMALL_BYTES, SMALL_MESSAGES);
	leave(&k);
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

static void two_kernels_work_together_by_flush_and_fetch(void)
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

static void without_any_one_flush_or_fetch_they_do_not(void)
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
				fprintf(stderr, "point %u: nobody misses its %s\n", i / 2,
					i % 2 ? "fetch" : "flush");
				survived++;
			}
		ended++;
	}
	CHECK_EQ(survived, 0);
}

static const struct test_case cases[] = {
	CASE(two_kernels_work_together_by_flush_and_fetch),
	CASE(without_any_one_flush_or_fetch_they_do_not),
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
