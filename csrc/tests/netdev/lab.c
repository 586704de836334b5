/* SPDX-License-Identifier: BSD-3-Clause
 * Pumps for tests: see lab.h. */
#include "tests/netdev/lab.h"
#include "engine/net/net.h"
#include "segment/slot/counters.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct nupa_fabric *lab_fabric_by(const struct nupa_config *config)
{
	struct nupa_host hosts[LAB_HOSTS];
	struct nupa_port ports[LAB_PORTS];
	struct nupa_route routes[LAB_HOSTS * LAB_HOSTS];
	struct nupa_fabric *fabric = NULL;
	char why[512] = "";

	memset(hosts, 0, sizeof(hosts));
	memset(ports, 0, sizeof(ports));
	memset(routes, 0, sizeof(routes));
	for (uint32_t i = 0; i < LAB_HOSTS; i++) { /* port i is host i's, port N + i the switch's */
		snprintf(hosts[i].name, sizeof(hosts[i].name), "host%u", i);
		hosts[i].port = i;
		hosts[i].link_layer = NUPA_LINK_ETHERNET;
		hosts[i].ipv4 = 0x0a000001 + i;
		memcpy(hosts[i].mac, (uint8_t[]){ 2, 0, 10, 0, 0, (uint8_t)(i + 1) }, 6);
		ports[i] = (struct nupa_port){ .peer = LAB_HOSTS + i,
					       .node = i,
					       .number = 1,
					       .width_lanes = 4,
					       .speed_mtps = 32000,
					       .state = NUPA_PORT_ACTIVE };
		ports[LAB_HOSTS + i] = (struct nupa_port){ .peer = i,
							   .is_switch = 1,
							   .number = i + 1,
							   .width_lanes = 4,
							   .speed_mtps = 32000,
							   .state = NUPA_PORT_ACTIVE };
		snprintf(ports[i].name, sizeof(ports[i].name), "host%u/1", i);
		snprintf(ports[LAB_HOSTS + i].name, sizeof(ports[i].name), "switch0/%u", i + 1);
		for (uint32_t to = 0; to < LAB_HOSTS; to++)
			if (to != i)
				routes[i * LAB_HOSTS + to] = (struct nupa_route){
					.hops = 4,
					.port = { (uint16_t)i, (uint16_t)(LAB_HOSTS + i),
						  (uint16_t)(LAB_HOSTS + to), (uint16_t)to }
				};
	}
	if (nupa_fabric_create(NULL, "net", config, hosts, LAB_HOSTS, ports, LAB_PORTS, routes,
			       &fabric, why, sizeof(why))) {
		fprintf(stderr, "%s\n", why);
		abort();
	}
	return fabric;
}

struct nupa_fabric *lab_fabric(uint32_t dma_bytes)
{
	const struct nupa_config config = { .slots = 16,
					    .dma_bytes = dma_bytes,
					    .qp_entries = 64,
					    .mr_entries = 64,
					    .pool_bytes = 1 << 20 };

	return lab_fabric_by(&config);
}

void *lab_run(void *arg)
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
	const int room_bytes = LAB_ROOM_BYTES;
	char why[256] = "";
	int pair[2];

	CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	for (int i = 0; i < 2; i++) /* as root it is more, else what there is */
		if (setsockopt(pair[i], SOL_SOCKET, SO_SNDBUFFORCE, &room_bytes, sizeof(int)))
			CHECK_EQ(
			    setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &room_bytes, sizeof(int)),
			    0);
	CHECK_EQ(nupa_pump_add(lab->pump, side % LAB_HOSTS, side / LAB_HOSTS, pair[1], LAB_MTU, why,
			       sizeof(why)),
		 0);
	return pair[0];
}

struct lab *lab_open(struct nupa_fabric *fabric, uint32_t sides)
{
	struct lab *lab = calloc(1, sizeof(*lab));

	lab->fabric = fabric;
	lab->lost = -1;
	CHECK(lab->pump = nupa_pump_new(fabric));
	for (uint32_t i = 0; i < LAB_SIDES; i++)
		lab->side[i] = sides >> i & 1 ? plug(lab, i) : -1;
	CHECK_EQ(pthread_create(&lab->thread, NULL, lab_run, lab), 0);
	return lab;
}

void lab_close(struct lab *lab)
{
	nupa_pump_stop(lab->pump);
	CHECK_EQ(pthread_join(lab->thread, NULL), 0);
	nupa_pump_free(lab->pump);
	for (uint32_t i = 0; i < LAB_SIDES; i++)
		if (lab->side[i] >= 0)
			close(lab->side[i]);
	free(lab);
}

void lab_send_to(const struct lab *lab, uint32_t from, const uint8_t mac[ETH_ALEN], uint32_t bytes,
		 uint32_t seed)
{
	static uint8_t frame[LAB_HEADERS + LAB_MTU + 1];

	memset(frame, 0, sizeof(frame));
	if (bytes >= LAB_HEADERS) {
		memcpy(frame + NUPA_VNET_BYTES, mac, ETH_ALEN);
		memcpy(frame + NUPA_VNET_BYTES + ETH_ALEN, lab->fabric->hosts[from % LAB_HOSTS].mac,
		       ETH_ALEN);
		frame[NUPA_VNET_BYTES + 12] = 0x88; /* an EtherType for experiments */
		frame[NUPA_VNET_BYTES + 13] = 0xb5;
		pattern_fill(frame + LAB_HEADERS, bytes - LAB_HEADERS, seed);
	}
	CHECK_EQ(send(lab->side[from], frame, bytes, 0), bytes);
}

void lab_send(const struct lab *lab, uint32_t from, uint32_t to, uint32_t bytes, uint32_t seed)
{
	lab_send_to(lab, from, lab->fabric->hosts[to].mac, bytes, seed);
}

void lab_expect(const struct lab *lab, uint32_t to, uint32_t bytes, uint32_t seed)
{
	static uint8_t frame[LAB_HEADERS + LAB_MTU + 1];
	struct pollfd pollfd = { .fd = lab->side[to], .events = POLLIN };

	CHECK_EQ(poll(&pollfd, 1, LAB_WAIT_MS), 1);
	CHECK_EQ(recv(lab->side[to], frame, sizeof(frame), 0), bytes);
	if (seed != ANY_SEED)
		CHECK_PATTERN(frame + LAB_HEADERS, bytes - LAB_HEADERS, seed);
}

void lab_expect_silence(const struct lab *lab, uint32_t to)
{
	struct pollfd pollfd = { .fd = lab->side[to], .events = POLLIN };

	CHECK_EQ(poll(&pollfd, 1, LAB_SILENCE_MS), 0);
}

struct nupa_net_counters lab_counters(struct nupa_fabric *fabric, uint32_t host)
{
	struct nupa_net_counters counters = { 0 };

	for (uint32_t slot = 1; slot < fabric->geometry.n_slots; slot++)
		if (nupa_load_acquire(&fabric->slots[slot].net_queue) &&
		    nupa_load_relaxed(&fabric->slots[slot].host) == host)
			CHECK_EQ(nupa_fabric_net_counters(fabric, slot, &counters), 0);
	return counters;
}
