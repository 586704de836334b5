/* SPDX-License-Identifier: BSD-3-Clause
 * Pumps between pairs of sockets that stand for TAP devices: what is sent to one arrives at
 * another, whole and in order; what cannot arrive is counted; and the ends of interfaces, pumps and
 * processes. */
#include "tests/support/end.h"
#include "netdev/frame.h"
#include "engine/net/net.h"
#include "netdev/netdev.h"
#include "region/region.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MTU NUPA_NETDEV_MTU_MAX_BYTES
#define HEADERS (NUPA_VNET_BYTES + ETH_HLEN)
#define N_HOSTS 3u
#define N_PORTS (2 * N_HOSTS)
#define N_SIDES (2 * N_HOSTS)
#define QUEUE_1(host) (N_HOSTS + (host)) /* among sides; queue 0 has the host's own number */
#define SILENCE_MS 50
#define WAIT_MS 20000
#define ANY_SEED UINT32_MAX
#define ROOM_BYTES (4 << 20) /* in the sockets */

/* Three hosts on a switch. */
static struct nupa_fabric *fabric_by(const struct nupa_config *config)
{
	struct nupa_host hosts[N_HOSTS];
	struct nupa_port ports[N_PORTS];
	struct nupa_route routes[N_HOSTS * N_HOSTS];
	struct nupa_fabric *fabric = NULL;
	char why[512] = "";

	memset(hosts, 0, sizeof(hosts));
	memset(ports, 0, sizeof(ports));
	memset(routes, 0, sizeof(routes));
	for (uint32_t i = 0; i < N_HOSTS; i++) { /* port i is host i's, port N + i the switch's */
		snprintf(hosts[i].name, sizeof(hosts[i].name), "host%u", i);
		hosts[i].port = i;
		hosts[i].link_layer = NUPA_LINK_ETHERNET;
		hosts[i].ipv4 = 0x0a000001 + i;
		memcpy(hosts[i].mac, (uint8_t[]){ 2, 0, 10, 0, 0, (uint8_t)(i + 1) }, 6);
		ports[i] = (struct nupa_port){ .peer = N_HOSTS + i,
					       .node = i,
					       .number = 1,
					       .width_lanes = 4,
					       .speed_mtps = 32000,
					       .state = NUPA_PORT_ACTIVE };
		ports[N_HOSTS + i] = (struct nupa_port){ .peer = i,
							 .is_switch = 1,
							 .number = i + 1,
							 .width_lanes = 4,
							 .speed_mtps = 32000,
							 .state = NUPA_PORT_ACTIVE };
		snprintf(ports[i].name, sizeof(ports[i].name), "host%u/1", i);
		snprintf(ports[N_HOSTS + i].name, sizeof(ports[i].name), "switch0/%u", i + 1);
		for (uint32_t to = 0; to < N_HOSTS; to++)
			if (to != i)
				routes[i * N_HOSTS + to] = (struct nupa_route){
					.hops = 4,
					.port = { (uint16_t)i, (uint16_t)(N_HOSTS + i),
						  (uint16_t)(N_HOSTS + to), (uint16_t)to }
				};
	}
	if (nupa_fabric_create(NULL, "net", config, hosts, N_HOSTS, ports, N_PORTS, routes, &fabric,
			       why, sizeof(why))) {
		fprintf(stderr, "%s\n", why);
		abort();
	}
	return fabric;
}

static struct nupa_fabric *fabric_of(uint32_t dma_bytes)
{
	const struct nupa_config config = { .slots = 16,
					    .dma_bytes = dma_bytes,
					    .qp_entries = 64,
					    .mr_entries = 64,
					    .pool_bytes = 1 << 20 };

	return fabric_by(&config);
}

/* --- a pump with interfaces ---------------------------------------------------------- */

struct lab {
	struct nupa_fabric *fabric;
	struct nupa_pump *pump;
	pthread_t thread;
	int side[N_SIDES]; /* what the host sends and receives; -1: it has no such queue here */
	int lost;          /* the host whose interface was the last to vanish */
	int end;           /* what nupa_pump_run said last */
};

static void *run(void *arg)
{
	struct lab *lab = arg;
	int host;

	while ((lab->end = nupa_pump_run(lab->pump, &host)) == -ENODEV)
		nupa_store_release(&lab->lost, host);
	return NULL;
}

/* The end of a new queue of a host's interface that is the host's. */
static int plug(struct lab *lab, uint32_t side)
{
	const int room_bytes = ROOM_BYTES;
	char why[256] = "";
	int pair[2];

	CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	for (int i = 0; i < 2; i++) /* as root it is more, else what there is */
		if (setsockopt(pair[i], SOL_SOCKET, SO_SNDBUFFORCE, &room_bytes, sizeof(int)))
			CHECK_EQ(
			    setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &room_bytes, sizeof(int)),
			    0);
	CHECK_EQ(nupa_pump_add(lab->pump, side % N_HOSTS, side / N_HOSTS, pair[1], MTU, why,
			       sizeof(why)),
		 0);
	return pair[0];
}

/* With those sides whose bits are set: hosts, by their queue 0. */
static struct lab *lab_open(struct nupa_fabric *fabric, uint32_t sides)
{
	struct lab *lab = calloc(1, sizeof(*lab));

	lab->fabric = fabric;
	lab->lost = -1;
	CHECK(lab->pump = nupa_pump_new(fabric));
	for (uint32_t i = 0; i < N_SIDES; i++)
		lab->side[i] = sides >> i & 1 ? plug(lab, i) : -1;
	CHECK_EQ(pthread_create(&lab->thread, NULL, run, lab), 0);
	return lab;
}

static void lab_close(struct lab *lab)
{
	nupa_pump_stop(lab->pump);
	CHECK_EQ(pthread_join(lab->thread, NULL), 0);
	nupa_pump_free(lab->pump);
	for (uint32_t i = 0; i < N_SIDES; i++)
		if (lab->side[i] >= 0)
			close(lab->side[i]);
	free(lab);
}

static const uint8_t everybody[ETH_ALEN] = { 255, 255, 255, 255, 255, 255 };

/* A frame of *bytes* in all to that address, with a pattern behind its headers. */
static void send_to(const struct lab *lab, uint32_t from, const uint8_t mac[ETH_ALEN],
		    uint32_t bytes, uint32_t seed)
{
	static uint8_t frame[HEADERS + MTU + 1];

	memset(frame, 0, sizeof(frame));
	if (bytes >= HEADERS) {
		memcpy(frame + NUPA_VNET_BYTES, mac, ETH_ALEN);
		memcpy(frame + NUPA_VNET_BYTES + ETH_ALEN, lab->fabric->hosts[from % N_HOSTS].mac,
		       ETH_ALEN);
		frame[NUPA_VNET_BYTES + 12] = 0x88; /* an EtherType for experiments */
		frame[NUPA_VNET_BYTES + 13] = 0xb5;
		pattern_fill(frame + HEADERS, bytes - HEADERS, seed);
	}
	CHECK_EQ(send(lab->side[from], frame, bytes, 0), bytes);
}

static void send_from_to(const struct lab *lab, uint32_t from, uint32_t to, uint32_t bytes,
			 uint32_t seed)
{
	send_to(lab, from, lab->fabric->hosts[to].mac, bytes, seed);
}

static void expect_at(const struct lab *lab, uint32_t to, uint32_t bytes, uint32_t seed)
{
	static uint8_t frame[HEADERS + MTU + 1];
	struct pollfd pollfd = { .fd = lab->side[to], .events = POLLIN };

	CHECK_EQ(poll(&pollfd, 1, WAIT_MS), 1);
	CHECK_EQ(recv(lab->side[to], frame, sizeof(frame), 0), bytes);
	if (seed != ANY_SEED)
		CHECK_PATTERN(frame + HEADERS, bytes - HEADERS, seed);
}

static void expect_silence(const struct lab *lab, uint32_t to)
{
	struct pollfd pollfd = { .fd = lab->side[to], .events = POLLIN };

	CHECK_EQ(poll(&pollfd, 1, SILENCE_MS), 0);
}

/* Of the interface of *host*, whoever serves it. */
static struct nupa_net_counters counters_of(struct nupa_fabric *fabric, uint32_t host)
{
	struct nupa_net_counters counters = { 0 };

	for (uint32_t slot = 1; slot < fabric->geometry.n_slots; slot++)
		if (nupa_load_acquire(&fabric->slots[slot].net_queue) &&
		    nupa_load_relaxed(&fabric->slots[slot].host) == host)
			CHECK_EQ(nupa_fabric_net_counters(fabric, slot, &counters), 0);
	return counters;
}

#define AWAIT(condition)                                                                           \
	for (uint64_t until_ns = test_now_ns() + WAIT_NS; !(condition);)                           \
	CHECK(test_now_ns() < until_ns)
#define AWAIT_COUNT(fabric, host, counter, n) AWAIT(counters_of(fabric, host).counter == (n))

/* --- frames -------------------------------------------------------------------------- */

static void frames_of_every_length_arrive_whole_and_in_order(void)
{
	struct nupa_fabric *fabric = fabric_of(0);
	struct lab *lab = lab_open(fabric, 3);

	for (uint32_t bytes = HEADERS, i = 0; bytes <= HEADERS + MTU; bytes += 1 + bytes / 7, i++) {
		send_from_to(lab, 0, 1, bytes, i);
		send_from_to(lab, 1, 0, bytes, ~i);
		expect_at(lab, 1, bytes, i);
		expect_at(lab, 0, bytes, ~i);
	}
	lab_close(lab);
	nupa_fabric_put(fabric);
}

static void the_ring_may_end_anywhere(void)
{
	struct nupa_fabric *fabric = fabric_of(1 << 20);
	struct lab *lab = lab_open(fabric, 3);
	uint64_t seed = test_seed();

	/* Some twenty laps of the DMA ring, in bursts. */
	for (uint32_t burst = 0; burst < 150; burst++) {
		uint32_t bytes[8];

		for (uint32_t i = 0; i < 8; i++) {
			bytes[i] = HEADERS + (uint32_t)test_random(&seed) % (i & 1 ? MTU / 2 : 200);
			send_from_to(lab, 0, 1, bytes[i], burst * 8 + i);
		}
		for (uint32_t i = 0; i < 8; i++)
			expect_at(lab, 1, bytes[i], burst * 8 + i);
	}
	CHECK_EQ(counters_of(fabric, 0).tx_packets, 1200);
	CHECK_EQ(counters_of(fabric, 1).rx_packets, 1200);
	lab_close(lab);
	nupa_fabric_put(fabric);
}

static void each_frame_goes_to_its_own_host(void)
{
	struct nupa_fabric *fabric = fabric_of(0);
	struct lab *lab = lab_open(fabric, 7);

	for (uint32_t i = 0; i < 100; i++) { /* no two in a row go the same way */
		send_from_to(lab, 0, 1 + i % 2, HEADERS + 100 + i, i);
		send_from_to(lab, 1, i % 2 ? 0 : 2, HEADERS + 200 + i, i);
		expect_at(lab, 1 + i % 2, HEADERS + 100 + i, i);
		expect_at(lab, i % 2 ? 0 : 2, HEADERS + 200 + i, i);
	}
	CHECK(counters_of(fabric, 0).tx_copied >= 99);
	expect_silence(lab, 0);
	lab_close(lab);
	nupa_fabric_put(fabric);
}

static void a_broadcast_reaches_all_others_once(void)
{
	struct nupa_fabric *fabric = fabric_of(0);
	struct lab *lab = lab_open(fabric, 7);

	for (uint32_t i = 0; i < 50; i++) {
		send_from_to(lab, 0, 1 + i % 2, HEADERS + 10, i);
		send_to(lab, 0, everybody, HEADERS + 1000 + i, i);
		expect_at(lab, 1 + i % 2, HEADERS + 10, i);
		expect_at(lab, 1, HEADERS + 1000 + i, i);
		expect_at(lab, 2, HEADERS + 1000 + i, i);
	}
	expect_silence(lab, 0);
	CHECK_EQ(counters_of(fabric, 0).tx_packets, 100);
	lab_close(lab);
	nupa_fabric_put(fabric);
}

static void a_queue_sends_to_its_like_or_to_queue_0_where_there_is_none(void)
{
	struct nupa_fabric *fabric = fabric_of(0);
	struct lab *lab = lab_open(fabric, 7 | 1u << QUEUE_1(0) | 1u << QUEUE_1(1));

	send_from_to(lab, QUEUE_1(0), 1, HEADERS + 50, 1);
	expect_at(lab, QUEUE_1(1), HEADERS + 50, 1);
	send_from_to(lab, QUEUE_1(0), 2, HEADERS + 60, 2);
	expect_at(lab, 2, HEADERS + 60, 2);
	send_from_to(lab, 0, 1, HEADERS + 70, 3);
	expect_at(lab, 1, HEADERS + 70, 3);
	send_to(lab, QUEUE_1(1), everybody, HEADERS + 80, 4);
	expect_at(lab, QUEUE_1(0), HEADERS + 80, 4);
	expect_at(lab, 2, HEADERS + 80, 4);
	for (uint32_t side = 0; side < N_SIDES; side++)
		if (lab->side[side] >= 0)
			expect_silence(lab, side);
	lab_close(lab);
	nupa_fabric_put(fabric);
}

/* --- what is dropped, and counted ---------------------------------------------------- */

static void runts_and_frames_beyond_the_mtu_are_dropped(void)
{
	struct nupa_fabric *fabric = fabric_of(0);
	struct lab *lab = lab_open(fabric, 3);

	send_from_to(lab, 0, 1, 1, 0);
	send_from_to(lab, 0, 1, HEADERS - 1, 0);
	send_from_to(lab, 0, 1, HEADERS + MTU + 1, 0);
	AWAIT_COUNT(fabric, 0, tx_invalid, 3);
	send_from_to(lab, 0, 1, HEADERS + MTU, 9);
	expect_at(lab, 1, HEADERS + MTU, 9);
	CHECK_EQ(counters_of(fabric, 0).tx_packets, 1);
	lab_close(lab);
	nupa_fabric_put(fabric);
}

static void what_nobody_has_is_dropped(void)
{
	struct nupa_fabric *fabric = fabric_of(0);
	struct lab *lab = lab_open(fabric, 3);

	send_to(lab, 0, (uint8_t[]){ 2, 0, 10, 0, 0, 77 }, HEADERS + 50, 0);
	AWAIT_COUNT(fabric, 0, tx_unknown, 1);
	send_from_to(lab, 0, 2, HEADERS + 50, 0); /* a host without an interface */
	AWAIT_COUNT(fabric, 0, tx_down, 1);
	expect_silence(lab, 1);
	lab_close(lab);
	nupa_fabric_put(fabric);
}

static void a_port_that_is_down_lets_nothing_through(void)
{
	struct nupa_fabric *fabric = fabric_of(0);
	struct lab *lab = lab_open(fabric, 3);

	send_from_to(lab, 0, 1, HEADERS + 50, 1);
	expect_at(lab, 1, HEADERS + 50, 1);
	CHECK_EQ(nupa_fabric_set_port(fabric, N_HOSTS + 1, NUPA_PORT_DOWN), 0);
	send_from_to(lab, 0, 1, HEADERS + 50, 2);
	AWAIT_COUNT(fabric, 0, tx_down, 1);
	CHECK_EQ(nupa_fabric_set_port(fabric, N_HOSTS + 1, NUPA_PORT_ACTIVE), 0);
	send_from_to(lab, 0, 1, HEADERS + 50, 3);
	expect_at(lab, 1, HEADERS + 50, 3);
	CHECK_EQ(counters_of(fabric, 0).carrier_changes, 0);
	CHECK_EQ(nupa_fabric_set_port(fabric, 0, NUPA_PORT_DOWN), 0);
	AWAIT_COUNT(fabric, 0, carrier_changes, 1);
	CHECK_EQ(nupa_fabric_set_port(fabric, 0, NUPA_PORT_ACTIVE), 0);
	AWAIT_COUNT(fabric, 0, carrier_changes, 2);
	lab_close(lab);
	nupa_fabric_put(fabric);
}

static void an_interface_that_takes_nothing_refuses(void)
{
	struct nupa_fabric *fabric = fabric_of(0);
	struct lab *lab = lab_open(fabric, 3);

	/* Nobody reads at host 1: its socket is full some time. */
	for (uint32_t i = 0; !counters_of(fabric, 1).rx_refused; i++) {
		send_from_to(lab, 0, 1, HEADERS + MTU, i);
		CHECK(i < 1000);
		AWAIT(counters_of(fabric, 0).tx_packets == i + 1);
	}
	send_from_to(lab, 1, 0, HEADERS + 9, 1); /* the other way works */
	expect_at(lab, 0, HEADERS + 9, 1);
	lab_close(lab);
	nupa_fabric_put(fabric);
}

/* What looks like a frame, or like nothing at all. */
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

/* A process that is no pump sends such messages to those of hosts 0 and 1, once *gate says so. */
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

static void forged_messages_harm_nobody(void)
{
	static uint8_t frame[HEADERS + MTU + 1];
	struct nupa_fabric *fabric = fabric_of(0);
	struct lab *lab;
	int gate[2], status;
	pid_t pid;

	CHECK_EQ(pipe(gate), 0);
	pid = forger_fork(fabric, gate[0]);
	lab = lab_open(fabric, 3);
	CHECK_EQ(write(gate[1], "", 1), 1);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	send_from_to(lab, 0, 1, HEADERS + 777, 1);
	for (bool found = false; !found;) { /* behind what looked like frames */
		ssize_t n = recv(lab->side[1], frame, sizeof(frame), 0);

		CHECK(n > 0);
		found = n == HEADERS + 777 && pattern_match(frame + HEADERS, 777, 1) == 777;
	}
	lab_close(lab);
	nupa_fabric_put(fabric);
}

/* --- limits -------------------------------------------------------------------------- */

static void what_cannot_be_added_says_why(void)
{
	struct nupa_fabric *small = fabric_of(256 << 10), *fabric = fabric_of(0);
	struct nupa_pump *pump = nupa_pump_new(fabric), *other = nupa_pump_new(fabric);
	struct nupa_pump *narrow = nupa_pump_new(small);
	char why[256];
	int pair[2];

	CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	CHECK_EQ(nupa_pump_add(pump, N_HOSTS, 0, pair[1], MTU, why, sizeof(why)), -EINVAL);
	CHECK(strstr(why, "there are 3 hosts"));
	CHECK_EQ(nupa_pump_add(pump, 0, NUPA_NET_QUEUES_MAX, pair[1], MTU, why, sizeof(why)),
		 -EINVAL);
	CHECK_EQ(nupa_pump_add(pump, 0, 0, pair[1], MTU + 1, why, sizeof(why)), -EINVAL);
	CHECK(strstr(why, "choose 68 to 65280"));
	CHECK_EQ(nupa_pump_add(pump, 0, 0, pair[1], 67, why, sizeof(why)), -EINVAL);
	CHECK_EQ(nupa_pump_add(pump, 0, 0, -1, MTU, why, sizeof(why)), -EBADF);
	CHECK_EQ(nupa_pump_add(narrow, 0, 0, pair[1], MTU, why, sizeof(why)), -EMSGSIZE);
	CHECK_EQ(nupa_pump_add(pump, 0, 0, pair[1], MTU, why, sizeof(why)), 0);
	CHECK_EQ(nupa_pump_add(other, 0, 0, pair[0], MTU, why, sizeof(why)), -EBUSY);
	CHECK(strstr(why, "served by another"));
	nupa_pump_free(pump); /* then it may */
	CHECK_EQ(nupa_pump_add(other, 0, 0, pair[0], MTU, why, sizeof(why)), 0);
	nupa_pump_free(other);
	nupa_pump_free(narrow);
	nupa_fabric_put(fabric);
	nupa_fabric_put(small);
}

/* --- ends ---------------------------------------------------------------------------- */

static void the_pump_goes_on_without_an_interface_that_vanished(void)
{
	struct nupa_fabric *fabric = fabric_of(0);
	struct lab *lab = lab_open(fabric, 7);

	send_from_to(lab, 0, 1, HEADERS + 50, 1);
	expect_at(lab, 1, HEADERS + 50, 1);
	close(lab->side[1]);
	lab->side[1] = -1;
	AWAIT(nupa_load_acquire(&lab->lost) == 1);
	send_from_to(lab, 0, 1, HEADERS + 50, 2);
	AWAIT_COUNT(fabric, 0, tx_down, 1);
	send_from_to(lab, 0, 2, HEADERS + 50, 3);
	expect_at(lab, 2, HEADERS + 50, 3);
	lab_close(lab);
	nupa_fabric_put(fabric);
}

/* Host 2's interface in a process of its own, which sends back what comes.  To be forked before
 * this process has an attachment; it begins once there is something to read from *gate (NULL: now).
 */
static pid_t echo_fork(struct nupa_fabric *fabric, const int *gate)
{
	static uint8_t frame[HEADERS + MTU];
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

		CHECK(n >= (ssize_t)HEADERS);
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

static void another_process_is_reached_by_its_doorbell(void)
{
	struct nupa_fabric *fabric = fabric_of(0);
	pid_t pid = echo_fork(fabric, NULL);
	struct lab *lab = lab_open(fabric, 3);

	AWAIT(is_up(fabric, 2));
	for (uint32_t i = 0; i < 300; i++) {
		uint32_t bytes = HEADERS + (i * 977) % MTU;

		send_from_to(lab, i & 1, 2, bytes, i);
		expect_at(lab, i & 1, bytes, i);
	}
	lab_close(lab);
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	nupa_fabric_put(fabric);
}

static void a_full_ring_is_waited_for(void)
{
	struct nupa_fabric *fabric = fabric_of(0);
	pid_t pid = echo_fork(fabric, NULL);
	struct lab *lab = lab_open(fabric, 1);
	socklen_t length = sizeof(int);
	uint64_t full = 0;
	int room_bytes;

	CHECK_EQ(getsockopt(lab->side[0], SOL_SOCKET, SO_SNDBUF, &room_bytes, &length), 0);
	if (room_bytes < ROOM_BYTES) /* then answers would be lost while nobody reads them */
		printf("     not run: sockets hold %d bytes (net.core.wmem_max)\n", room_bytes);
	AWAIT(is_up(fabric, 2));
	/* A machine that is busy for longer than a sender waits loses frames: then once more. */
	for (int round = 0; room_bytes >= ROOM_BYTES && (round == 0 || full); round++) {
		uint64_t packets = counters_of(fabric, 0).tx_packets;
		uint64_t before = counters_of(fabric, 0).tx_full;
		uint64_t sent = 40; /* more than twice the ring */

		CHECK(round < 20);
		for (uint32_t i = 0; i < sent; i++)
			send_from_to(lab, 0, 2, HEADERS + 60000, i);
		AWAIT(counters_of(fabric, 0).tx_packets + counters_of(fabric, 0).tx_full ==
		      packets + before + sent);
		full = counters_of(fabric, 0).tx_full - before;
		for (uint32_t i = 0; i < sent - full; i++)
			expect_at(lab, 0, HEADERS + 60000, full ? ANY_SEED : i);
	}
	lab_close(lab);
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	nupa_fabric_put(fabric);
}

static void a_process_that_is_killed_is_down_and_its_next_one_up(void)
{
	struct nupa_fabric *fabric = fabric_of(0);
	pid_t pids[2];
	struct lab *lab;
	int gate[2];

	CHECK_EQ(pipe(gate), 0);
	pids[0] = echo_fork(fabric, NULL);
	pids[1] = echo_fork(fabric, &gate[0]);
	lab = lab_open(fabric, 3);
	for (int life = 0; life < 2; life++) {
		uint64_t down = counters_of(fabric, 0).tx_down;

		AWAIT(is_up(fabric, 2));
		send_from_to(lab, 0, 2, HEADERS + 3000, 1);
		expect_at(lab, 0, HEADERS + 3000, 1);
		CHECK_EQ(kill(pids[life], SIGKILL), 0);
		CHECK_EQ(waitpid(pids[life], NULL, 0), pids[life]);
		AWAIT(!is_up(fabric, 2));
		send_from_to(lab, 0, 2, HEADERS + 50, 2);
		AWAIT_COUNT(fabric, 0, tx_down, down + 1);
		send_from_to(lab, 0, 1, HEADERS + 50, 3);
		expect_at(lab, 1, HEADERS + 50, 3);
		if (!life)
			CHECK_EQ(write(gate[1], "", 1), 1);
	}
	lab_close(lab);
	nupa_fabric_put(fabric);
}

static void a_process_that_is_stopped_holds_nobody_up(void)
{
	struct nupa_fabric *fabric = fabric_of(0);
	pid_t pid = echo_fork(fabric, NULL);
	struct lab *lab = lab_open(fabric, 3);
	uint32_t i;

	AWAIT(is_up(fabric, 2));
	send_from_to(lab, 0, 2, HEADERS + 50, 1);
	expect_at(lab, 0, HEADERS + 50, 1);
	CHECK_EQ(kill(pid, SIGSTOP), 0);
	CHECK_EQ(waitpid(pid, NULL, WUNTRACED), pid);
	for (i = 0; !counters_of(fabric, 0).tx_full; i++) { /* its ring is full */
		send_from_to(lab, 0, 2, HEADERS + 60000, i);
		CHECK(i < 1000);
		AWAIT(counters_of(fabric, 0).tx_packets + counters_of(fabric, 0).tx_full >= i + 2);
	}
	send_from_to(lab, 0, 1, HEADERS + 50, 2);
	expect_at(lab, 1, HEADERS + 50, 2);
	CHECK_EQ(kill(pid, SIGCONT), 0);
	/* What it had comes back, from the first; then there is room again. */
	for (uint32_t n = 0, kept = (uint32_t)counters_of(fabric, 0).tx_packets - 2; n < kept; n++)
		expect_at(lab, 0, HEADERS + 60000, n);
	send_from_to(lab, 0, 2, HEADERS + 70, 3);
	expect_at(lab, 0, HEADERS + 70, 3);
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

static void a_pump_that_was_taken_for_dead_says_so_and_another_takes_its_place(void)
{
	const struct nupa_config config = { .flags = NUPA_SEGMENT_MACHINES,
					    .segment_bytes = 128 << 20 };
	struct nupa_fabric *fabric = fabric_by(&config), *other = seen_from_elsewhere(fabric);
	struct lab *lab = lab_open(fabric, 7);

	send_from_to(lab, 0, 1, HEADERS + 50, 1);
	expect_at(lab, 1, HEADERS + 50, 1);
	CHECK_EQ(nupa_fabric_evict(other, 0), 1);
	CHECK_EQ(pthread_join(lab->thread, NULL), 0);
	CHECK_EQ(lab->end, -ESTALE);
	CHECK_EQ(pthread_create(&lab->thread, NULL, run, lab), 0); /* for lab_close */
	lab_close(lab);

	/* The others of the process, which share its mapping, have left with it. */
	for (uint32_t host = 1; host < N_HOSTS; host++)
		CHECK_EQ(nupa_fabric_evict(other, host), 0);
	other->kernel--;
	lab = lab_open(other, 7);
	send_from_to(lab, 0, 1, HEADERS + 50, 2);
	expect_at(lab, 1, HEADERS + 50, 2);
	lab_close(lab);
	nupa_fabric_put(other);
	nupa_fabric_put(fabric);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(frames_of_every_length_arrive_whole_and_in_order),
		CASE(the_ring_may_end_anywhere),
		CASE(each_frame_goes_to_its_own_host),
		CASE(a_broadcast_reaches_all_others_once),
		CASE(a_queue_sends_to_its_like_or_to_queue_0_where_there_is_none),
		CASE(runts_and_frames_beyond_the_mtu_are_dropped),
		CASE(what_nobody_has_is_dropped),
		CASE(a_port_that_is_down_lets_nothing_through),
		CASE(an_interface_that_takes_nothing_refuses),
		CASE(forged_messages_harm_nobody),
		CASE(what_cannot_be_added_says_why),
		CASE(the_pump_goes_on_without_an_interface_that_vanished),
		CASE(another_process_is_reached_by_its_doorbell),
		CASE(a_full_ring_is_waited_for),
		CASE(a_process_that_is_killed_is_down_and_its_next_one_up),
		CASE(a_process_that_is_stopped_holds_nobody_up),
		CASE(a_pump_that_was_taken_for_dead_says_so_and_another_takes_its_place),
	};

	return test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
