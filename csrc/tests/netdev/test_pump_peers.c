/* SPDX-License-Identifier: BSD-3-Clause
 * Pumps and other processes: forged messages, full rings, and the ends of interfaces, pumps and
 * processes. */
#include "tests/netdev/lab.h"
#include "engine/net/net.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* A message that may look like a frame. */
static void forge(struct nupa_channel *channel, uint64_t *seed, bool large)
{
	bool dma = test_random(seed) >> 33 & 7;
	uint32_t bytes =
	    1 + (uint32_t)test_random(seed) % (large ? channel->tx.dma_bytes / 4 : 200);
	uint8_t *payload = NULL;
	struct nupa_msg *line = nupa_tx_reserve(&channel->tx, dma ? bytes : 0, &payload);

	if (!line)
		return;
	for (uint32_t at = offsetof(struct nupa_msg, op); at < sizeof(*line); at++)
		((uint8_t *)line)[at] = (uint8_t)(test_random(seed) >> 40);
	line->op = NUPA_OP_NET;
	line->flags = (uint8_t)((line->flags & ~NUPA_F_DMA) | (dma ? NUPA_F_DMA : 0));
	line->length_bytes = bytes;
	for (uint32_t at = 0; payload && at < bytes && at < 100; at++)
		payload[at] = (uint8_t)(test_random(seed) >> 40);
	if (payload && large && test_random(seed) >> 20 & 1) {
		memset(payload, 0, NUPA_VNET_BYTES);
		payload[1] = VIRTIO_NET_HDR_GSO_TCPV4;
		payload[4] = 100;
	}
	nupa_tx_publish(&channel->tx, line, dma ? bytes : 0);
}

/* A process without a pump sends such messages to those of hosts 0 and 1, once *gate says so. */
static pid_t forger_fork(struct nupa_fabric *fabric, int gate)
{
	uint64_t seed = test_seed();
	pid_t pid = fork();
	char why[256];

	CHECK(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CHECK_EQ(read(gate, why, 1), 1);
	for (int round = 0; round < 200;
	     round++) { /* nonsense ends a channel: each has a new one */
		struct ibv_context *context =
		    nupa_open_host(fabric, 2, NUPA_MOVER_NONE, why, sizeof(why));
		struct nupa_engine *engine = nupa_engine_of(context);
		struct nupa_channel *channel;
		uint32_t slot = 1, host = (uint32_t)round % 2;

		while (!nupa_load_acquire(&fabric->slots[slot].net_queue) ||
		       nupa_load_relaxed(&fabric->slots[slot].host) != host)
			slot++;
		nupa_engine_lock(engine);
		channel = nupa_channel_get(engine, slot);
		CHECK(channel && !nupa_channel_back_dma(engine, channel));
		for (int i = 0; i < 20; i++)
			forge(channel, &seed, !(i & 1));
		nupa_channel_bell(channel);
		nupa_engine_unlock(engine);
		CHECK_EQ(nupa_close_device(context), 0);
	}
	exit(0);
}

TEST(forged_messages_harm_nobody)
{
	static uint8_t frame[LAB_HEADERS + LAB_MTU + 1];
	struct nupa_fabric *fabric = lab_fabric(0);
	struct lab *lab;
	int gate[2];
	pid_t pid;

	CHECK_EQ(pipe(gate), 0);
	pid = forger_fork(fabric, gate[0]);
	lab = lab_open(fabric, 3);
	CHECK_EQ(write(gate[1], "", 1), 1);
	CHECK_CHILD(pid);
	lab_send(lab, 0, 1, LAB_HEADERS + 777, 1);
	for (bool found = false; !found;) { /* behind what looked like frames */
		ssize_t n = recv(lab->side[1], frame, sizeof(frame), 0);

		CHECK(n > 0);
		found = n == LAB_HEADERS + 777 && pattern_match(frame + LAB_HEADERS, 777, 1) == 777;
	}
	lab_close(lab);
	nupa_fabric_put(fabric);
}

TEST(interfaces_that_cannot_be_added_are_refused_with_the_reason)
{
	struct nupa_fabric *small = lab_fabric(256 << 10), *fabric = lab_fabric(0);
	struct nupa_pump *pump = nupa_pump_new(fabric), *other = nupa_pump_new(fabric);
	struct nupa_pump *narrow = nupa_pump_new(small);
	char why[256];
	int pair[2];

	CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	CHECK_EQ(nupa_pump_add(pump, LAB_HOSTS, 0, pair[1], LAB_MTU, why, sizeof(why)), -EINVAL);
	CHECK(strstr(why, "there are 3 hosts"));
	CHECK_EQ(nupa_pump_add(pump, 0, NUPA_NET_QUEUES_MAX, pair[1], LAB_MTU, why, sizeof(why)),
		 -EINVAL);
	CHECK_EQ(nupa_pump_add(pump, 0, 0, pair[1], LAB_MTU + 1, why, sizeof(why)), -EINVAL);
	CHECK(strstr(why, "choose 68 to 65280"));
	CHECK_EQ(nupa_pump_add(pump, 0, 0, pair[1], 67, why, sizeof(why)), -EINVAL);
	CHECK_EQ(nupa_pump_add(pump, 0, 0, -1, LAB_MTU, why, sizeof(why)), -EBADF);
	CHECK_EQ(nupa_pump_add(narrow, 0, 0, pair[1], LAB_MTU, why, sizeof(why)), -EMSGSIZE);
	CHECK_EQ(nupa_pump_add(pump, 0, 0, pair[1], LAB_MTU, why, sizeof(why)), 0);
	CHECK_EQ(nupa_pump_add(other, 0, 0, pair[0], LAB_MTU, why, sizeof(why)), -EBUSY);
	CHECK(strstr(why, "is served by pid"));
	nupa_pump_free(pump); /* then it may */
	CHECK_EQ(nupa_pump_add(other, 0, 0, pair[0], LAB_MTU, why, sizeof(why)), 0);
	nupa_pump_free(other);
	nupa_pump_free(narrow);
	nupa_fabric_put(fabric);
	nupa_fabric_put(small);
}

TEST(the_pump_goes_on_without_an_interface_that_vanished)
{
	struct nupa_fabric *fabric = lab_fabric(0);
	struct lab *lab = lab_open(fabric, 7);

	lab_send(lab, 0, 1, LAB_HEADERS + 50, 1);
	lab_expect(lab, 1, LAB_HEADERS + 50, 1);
	close(lab->side[1]);
	lab->side[1] = -1;
	AWAIT(nupa_load_acquire(&lab->lost) == 1);
	lab_send(lab, 0, 1, LAB_HEADERS + 50, 2);
	AWAIT_COUNT(fabric, 0, tx_down, 1);
	lab_send(lab, 0, 2, LAB_HEADERS + 50, 3);
	lab_expect(lab, 2, LAB_HEADERS + 50, 3);
	lab_close(lab);
	nupa_fabric_put(fabric);
}

/* Host 2's interface in a process of its own, which sends back what comes.  To be forked before
 * this process has an attachment; it begins once there is something to read from *gate (NULL: now).
 */
static pid_t echo_fork(struct nupa_fabric *fabric, const int *gate)
{
	static uint8_t frame[LAB_HEADERS + LAB_MTU];
	pid_t pid = fork();
	struct lab *lab;

	CHECK(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (gate)
		CHECK_EQ(read(*gate, frame, 1), 1);
	lab = lab_open(fabric, 4);
	for (;;) {
		ssize_t n = recv(lab->side[2], frame, sizeof(frame), 0);

		CHECK(n >= (ssize_t)LAB_HEADERS);
		memcpy(frame + NUPA_VNET_BYTES, frame + NUPA_VNET_BYTES + ETH_ALEN, ETH_ALEN);
		memcpy(frame + NUPA_VNET_BYTES + ETH_ALEN, fabric->hosts[2].mac, ETH_ALEN);
		CHECK_EQ(send(lab->side[2], frame, (size_t)n, 0), n);
	}
}

static bool is_up(struct nupa_fabric *fabric, uint32_t host)
{
	for (uint32_t slot = 1; slot < fabric->geometry.n_slots; slot++)
		if (nupa_load_acquire(&fabric->slots[slot].net_queue) &&
		    nupa_load_relaxed(&fabric->slots[slot].host) == host)
			return true;
	return false;
}

TEST(another_process_is_reached_by_its_doorbell)
{
	struct nupa_fabric *fabric = lab_fabric(0);
	pid_t pid = echo_fork(fabric, NULL);
	struct lab *lab = lab_open(fabric, 3);

	AWAIT(is_up(fabric, 2));
	for (uint32_t i = 0; i < 300; i++) {
		uint32_t bytes = LAB_HEADERS + (i * 977) % LAB_MTU;

		lab_send(lab, i & 1, 2, bytes, i);
		lab_expect(lab, i & 1, bytes, i);
	}
	lab_close(lab);
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	nupa_fabric_put(fabric);
}

TEST(a_full_ring_is_waited_for)
{
	struct nupa_fabric *fabric = lab_fabric(0);
	pid_t pid = echo_fork(fabric, NULL);
	struct lab *lab = lab_open(fabric, 1);
	socklen_t length = sizeof(int);
	uint64_t full = 0;
	int room_bytes;

	CHECK_EQ(getsockopt(lab->side[0], SOL_SOCKET, SO_SNDBUF, &room_bytes, &length), 0);
	if (room_bytes < LAB_ROOM_BYTES) /* then unread answers would be lost */
		printf("     not run: sockets hold %d bytes (net.core.wmem_max)\n", room_bytes);
	AWAIT(is_up(fabric, 2));
	/* A machine that is busy for longer than a sender waits loses frames: then once more. */
	for (int round = 0; room_bytes >= LAB_ROOM_BYTES && (round == 0 || full); round++) {
		uint64_t packets = lab_counters(fabric, 0).tx_packets;
		uint64_t before = lab_counters(fabric, 0).tx_full;
		uint64_t sent = 40; /* more than twice the ring */

		CHECK(round < 20);
		for (uint32_t i = 0; i < sent; i++)
			lab_send(lab, 0, 2, LAB_HEADERS + 60000, i);
		AWAIT(lab_counters(fabric, 0).tx_packets + lab_counters(fabric, 0).tx_full ==
		      packets + before + sent);
		full = lab_counters(fabric, 0).tx_full - before;
		for (uint32_t i = 0; i < sent - full; i++)
			lab_expect(lab, 0, LAB_HEADERS + 60000, full ? ANY_SEED : i);
	}
	lab_close(lab);
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	nupa_fabric_put(fabric);
}

TEST(a_process_that_is_killed_is_down_and_its_next_one_up)
{
	struct nupa_fabric *fabric = lab_fabric(0);
	pid_t pids[2];
	struct lab *lab;
	int gate[2];

	CHECK_EQ(pipe(gate), 0);
	pids[0] = echo_fork(fabric, NULL);
	pids[1] = echo_fork(fabric, &gate[0]);
	lab = lab_open(fabric, 3);
	for (int life = 0; life < 2; life++) {
		uint64_t down = lab_counters(fabric, 0).tx_down;

		AWAIT(is_up(fabric, 2));
		lab_send(lab, 0, 2, LAB_HEADERS + 3000, 1);
		lab_expect(lab, 0, LAB_HEADERS + 3000, 1);
		CHECK_EQ(kill(pids[life], SIGKILL), 0);
		CHECK_EQ(waitpid(pids[life], NULL, 0), pids[life]);
		AWAIT(!is_up(fabric, 2));
		lab_send(lab, 0, 2, LAB_HEADERS + 50, 2);
		AWAIT_COUNT(fabric, 0, tx_down, down + 1);
		lab_send(lab, 0, 1, LAB_HEADERS + 50, 3);
		lab_expect(lab, 1, LAB_HEADERS + 50, 3);
		if (!life)
			CHECK_EQ(write(gate[1], "", 1), 1);
	}
	lab_close(lab);
	nupa_fabric_put(fabric);
}

TEST(a_process_that_is_stopped_holds_nobody_up)
{
	struct nupa_fabric *fabric = lab_fabric(0);
	pid_t pid = echo_fork(fabric, NULL);
	struct lab *lab = lab_open(fabric, 3);
	uint32_t i;

	AWAIT(is_up(fabric, 2));
	lab_send(lab, 0, 2, LAB_HEADERS + 50, 1);
	lab_expect(lab, 0, LAB_HEADERS + 50, 1);
	CHECK_EQ(kill(pid, SIGSTOP), 0);
	CHECK_EQ(waitpid(pid, NULL, WUNTRACED), pid);
	for (i = 0; !lab_counters(fabric, 0).tx_full; i++) { /* its ring is full */
		lab_send(lab, 0, 2, LAB_HEADERS + 60000, i);
		CHECK(i < 1000);
		AWAIT(lab_counters(fabric, 0).tx_packets + lab_counters(fabric, 0).tx_full >=
		      i + 2);
	}
	lab_send(lab, 0, 1, LAB_HEADERS + 50, 2);
	lab_expect(lab, 1, LAB_HEADERS + 50, 2);
	CHECK_EQ(kill(pid, SIGCONT), 0);
	/* Its former content comes back, from the first; then there is room again. */
	for (uint32_t n = 0, kept = (uint32_t)lab_counters(fabric, 0).tx_packets - 2; n < kept; n++)
		lab_expect(lab, 0, LAB_HEADERS + 60000, n);
	lab_send(lab, 0, 2, LAB_HEADERS + 70, 3);
	lab_expect(lab, 0, LAB_HEADERS + 70, 3);
	lab_close(lab);
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	nupa_fabric_put(fabric);
}

/* The same memory, as another kernel has it. */
static struct nupa_fabric *seen_from_elsewhere(struct nupa_fabric *fabric)
{
	struct nupa_fabric *other = NULL;
	char path[32], why[512] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fabric->fd);
	CHECK_EQ(nupa_fabric_open(path, &other, why, sizeof(why)), 0);
	other->kernel = fabric->kernel + 1;
	return other;
}

TEST(a_pump_that_was_taken_for_dead_says_so_and_another_takes_its_place)
{
	const struct nupa_config config = { .flags = NUPA_SEGMENT_MACHINES,
					    .segment_bytes = 128 << 20 };
	struct nupa_fabric *fabric = lab_fabric_by(&config), *other = seen_from_elsewhere(fabric);
	struct lab *lab = lab_open(fabric, 7);

	lab_send(lab, 0, 1, LAB_HEADERS + 50, 1);
	lab_expect(lab, 1, LAB_HEADERS + 50, 1);
	CHECK_EQ(nupa_fabric_evict(other, 0), 1);
	CHECK_EQ(pthread_join(lab->thread, NULL), 0);
	CHECK_EQ(lab->end, -ESTALE);
	CHECK_EQ(pthread_create(&lab->thread, NULL, lab_run, lab), 0); /* for lab_close */
	lab_close(lab);

	/* The others of the process, which share its mapping, have left with it. */
	for (uint32_t host = 1; host < LAB_HOSTS; host++)
		CHECK_EQ(nupa_fabric_evict(other, host), 0);
	other->kernel--;
	lab = lab_open(other, 7);
	lab_send(lab, 0, 1, LAB_HEADERS + 50, 2);
	lab_expect(lab, 1, LAB_HEADERS + 50, 2);
	lab_close(lab);
	nupa_fabric_put(other);
	nupa_fabric_put(fabric);
}
