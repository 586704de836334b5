/* SPDX-License-Identifier: BSD-3-Clause
 * A worker of the soak: does what the director says on its socket, standard input.
 *
 *   worker warm-up             makes the fabric back what stays backed
 *   worker EVENTS SEED BOARD   EVENTS: 1 sleeps until something happens, 0 polls; BOARD: an fd
 *
 * SIGUSR1: _exit at once.  SIGUSR2: exit without closing anything, when it suits. */
#include "soak.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CQ_ENTRIES 4096
#define BREATH_NS 300000
#define MEASURE_NS UINT64_C(500000000)

struct worker worker;

static volatile sig_atomic_t exit_asked;

static void exit_now(int signal_number)
{
	(void)signal_number;
	_exit(0);
}

static void exit_soon(int signal_number)
{
	(void)signal_number;
	exit_asked = 1;
}

void srq_post(uint32_t buffer)
{
	struct ibv_srq *srq = buffer < SRQ_BUFFERS ? worker.srq : worker.xrc_srq;
	struct ibv_sge sge = { (uintptr_t)worker.srq_memory + (size_t)buffer * MESSAGE_MAX_BYTES,
			       MESSAGE_MAX_BYTES, worker.srq_mr->lkey };
	struct ibv_recv_wr *bad,
	    wr = { .wr_id = WR_ID(WR_SRQ_RECV, 0, buffer), .sg_list = &sge, .num_sge = 1 };

	if (ibv_post_srq_recv(srq, &wr, &bad))
		give_up("ibv_post_srq_recv failed");
}

static void open_srq(void)
{
	const size_t bytes = 2 * SRQ_BUFFERS * (size_t)MESSAGE_MAX_BYTES;
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = SRQ_BUFFERS, .max_sge = 1 } };

	worker.srq_memory =
	    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(worker.srq_memory != MAP_FAILED, "mmap");
	worker.srq_mr = ibv_reg_mr(worker.pd, worker.srq_memory, bytes, IBV_ACCESS_LOCAL_WRITE);
	must(worker.srq_mr, "ibv_reg_mr");
	worker.srq = ibv_create_srq(worker.pd, &attr);
	must(worker.srq, "ibv_create_srq");
	xrc_open();
	for (uint32_t i = 0; i < 2 * SRQ_BUFFERS; i++)
		srq_post(i);
}

static int setting(const char *name, int otherwise)
{
	const char *value = getenv(name);

	return value ? atoi(value) : otherwise;
}

enum ibv_mtu mtu_now(void)
{
	struct ibv_port_attr port;

	must(ibv_query_port(worker.context, 1, &port) == 0, "ibv_query_port");
	return port.active_mtu;
}

static void open_context(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);

	must(list && n, "ibv_get_device_list");
	worker.context = ibv_open_device(list[0]);
	must(worker.context, "ibv_open_device");
	ibv_free_device_list(list);
	worker.gid_index = (uint8_t)setting("SOAK_GID_INDEX", 1);
	worker.timeout = (uint8_t)setting("SOAK_TIMEOUT", 18); /* 1 s: who is stopped is not gone */
	worker.network = setting("SOAK_NETWORK", 0);
	worker.mtu_bytes = (uint32_t)setting("SOAK_MTU_BYTES", 0);
	worker.pd = ibv_alloc_pd(worker.context);
	must(worker.pd, "ibv_alloc_pd");
}

static void close_context(void)
{
	if (ibv_dealloc_pd(worker.pd) || ibv_close_device(worker.context))
		wrong("PD or device could not be closed");
}

/* Memory that the library keeps after its first use is not a leak. */
static void warm_up(void)
{
	const size_t bytes = 65536;
	struct ibv_mr *mr;
	void *memory =
	    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(memory != MAP_FAILED, "mmap");
	open_context();
	mr = ibv_reg_mr(worker.pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	must(mr && !ibv_dereg_mr(mr), "ibv_reg_mr, ibv_dereg_mr");
	close_context();
	munmap(memory, bytes);
	rdma_free_devices(rdma_get_devices(NULL));
	measure(0);
}

static void open_device(bool events)
{
	open_context();
	if (events) {
		worker.channel = ibv_create_comp_channel(worker.context);
		must(worker.channel, "ibv_create_comp_channel");
		fcntl(worker.channel->fd, F_SETFL, O_NONBLOCK);
	}
	worker.cq = ibv_create_cq(worker.context, CQ_ENTRIES, NULL, worker.channel, 0);
	must(worker.cq, "ibv_create_cq");
	fcntl(worker.context->async_fd, F_SETFL, O_NONBLOCK);
	open_srq();
}

static void close_device(void)
{
	for (uint32_t i = 0; i < ENDS_MAX; i++)
		if (worker.ends[i])
			end_destroy(worker.ends[i]);
	graves_visit(true);
	datagrams_close();
	dials_close();
	events_close();
	xrc_close();
	if (ibv_destroy_srq(worker.srq) || ibv_dereg_mr(worker.srq_mr) ||
	    ibv_destroy_cq(worker.cq) ||
	    (worker.channel && ibv_destroy_comp_channel(worker.channel)))
		wrong("something could not be closed");
	close_context();
	munmap(worker.srq_memory, 2 * SRQ_BUFFERS * (size_t)MESSAGE_MAX_BYTES);
}

/* --- the loop ------------------------------------------------------------------------------------
 */

static uint64_t fatal_ns(const struct end *end)
{
	uint64_t ns = events_fatal_ns(end->qp->qp_num, end->made_ns);

	return ns ? ns : events_fatal_ns(end->recv_qp->qp_num, end->made_ns);
}

static void fail(struct end *end, const struct ibv_wc *wc)
{
	uint64_t now_ns = clock_ns();
	uint64_t event_ns = fatal_ns(end);

	if (event_ns && event_ns < now_ns)
		now_ns = event_ns;
	board_log(LOG_DOWN, end->id, end->posted, (uint32_t)(wc->wr_id >> 56), 0, wc->status);
	tell("down %u %d %" PRIu64 " %" PRIu64, end->id, wc->status ? (int)wc->status : LOST,
	     now_ns, last_long_dereg_ns);
	end_die(end);
}

/* The peer of an end with an SRQ and nothing under way is told of by the event alone. */
static void handle_events(void)
{
	const struct ibv_wc flushed = { .status = IBV_WC_WR_FLUSH_ERR };
	static uint32_t seen;
	uint32_t count = events_count();

	if (count == seen)
		return;
	seen = count;
	for (uint32_t i = 0; i < ENDS_MAX; i++) {
		struct end *end = worker.ends[i];

		if (end && !end->dying && fatal_ns(end))
			fail(end, &flushed);
	}
}

/* Those whose completions, with receives of the SRQ among them, have been polled: the CQ is empty,
 * or was polled once through.  Under traffic it may not be empty for many seconds. */
static void destroy_dying(bool empty)
{
	for (uint32_t i = 0; i < ENDS_MAX; i++) {
		struct end *end = worker.ends[i];

		if (!end || !end->dying || (!empty && worker.polled - end->died_at < CQ_ENTRIES))
			continue;
		worker.ends[i] = NULL;
		tell("gone %u", end->id);
		end_destroy(end);
	}
}

static void complete(const struct ibv_wc *wc)
{
	uint32_t kind = (uint32_t)(wc->wr_id >> 56);
	struct end *end = NULL;

	if (kind == WR_DATAGRAM || kind == WR_DATAGRAM_RECV) {
		datagrams_complete(wc);
		return;
	}
	for (uint32_t i = 0; i < ENDS_MAX && !end; i++)
		if (worker.ends[i] && end_has_qp(worker.ends[i], wc->qp_num))
			end = worker.ends[i];
	/* Of an XRC SRQ, which outlives the QPs that it receives for. */
	if (!end && kind == WR_SRQ_RECV && (uint32_t)wc->wr_id >= SRQ_BUFFERS) {
		srq_post((uint32_t)wc->wr_id);
		return;
	}
	if (!end) {
		wrong("a completion (%s) of QP 0x%x, which is gone", ibv_wc_status_str(wc->status),
		      wc->qp_num);
		return;
	}
	if (!end->dying && end_complete(end, wc))
		return;
	if (kind == WR_SRQ_RECV)
		srq_post((uint32_t)wc->wr_id);
	if (!end->dying)
		fail(end, wc);
}

static bool reap(void)
{
	struct ibv_wc wcs[16];
	int got = 0;

	for (uint32_t round = 0; round < 16; round++) {
		got = ibv_poll_cq(worker.cq, 16, wcs);
		if (got < 0)
			give_up("ibv_poll_cq failed");
		for (int i = 0; i < got; i++, worker.polled++)
			complete(&wcs[i]);
		if (!got) {
			destroy_dying(true);
			return round != 0;
		}
	}
	destroy_dying(false);
	return true;
}

static void wait_for_news(void)
{
	struct pollfd fds[] = { { STDIN_FILENO, POLLIN, 0 }, { worker.channel->fd, POLLIN, 0 } };
	struct ibv_cq *cq;
	void *context;

	if (ibv_req_notify_cq(worker.cq, 0))
		give_up("ibv_req_notify_cq failed");
	if (reap())
		return;
	poll(fds, 2, 5);
	while (ibv_get_cq_event(worker.channel, &cq, &context) == 0)
		ibv_ack_cq_events(cq, 1);
	/* Others want to get on as well: a core that is never free tells nothing of deaths. */
	nanosleep(&(struct timespec){ .tv_nsec = BREATH_NS }, NULL);
}

static void turn(uint64_t number)
{
	static uint64_t measured_ns;
	uint64_t now_ns = clock_ns();

	board->heartbeat_ns = now_ns;
	if (now_ns - measured_ns > MEASURE_NS) {
		measured_ns = now_ns;
		measure(1);
	}
	if (number % 16 == 0 || worker.channel) {
		hear();
		handle_events();
		graves_visit(false);
	}
	for (uint32_t i = 0; i < ENDS_MAX; i++) {
		struct end *end = worker.ends[i];

		if (!end)
			continue;
		end_send(end);
		board->ends[i].id = end->id;
		board->ends[i].progress = end->posted + end->done + end->received;
	}
	datagrams_send();
	dials_turn();
	reap();
	if (worker.channel)
		wait_for_news();
}

int main(int argc, char **argv)
{
	bool events = argc == 4 && atoi(argv[1]);
	int fd = argc == 4 ? atoi(argv[3]) : -1;

	if (argc == 2 && strcmp(argv[1], "warm-up") == 0) {
		dials_warm_up();
		return 0;
	}
	if (argc != 4)
		return 2;
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(board != MAP_FAILED, "the board");
	close(fd);
	signal(SIGUSR1, exit_now);
	signal(SIGUSR2, exit_soon);
	warm_up();
	open_device(events);
	events_open();
	dials_open();
	datagrams_open(strtoull(argv[2], NULL, 0));
	for (uint64_t number = 0; !finish_asked; number++) {
		turn(number);
		if (exit_asked)
			exit(0); /* like a program that closes nothing */
	}
	close_device();
	measure(2);
	tell("finished");
	return 0;
}
