/* SPDX-License-Identifier: BSD-3-Clause
 * The table of wires: what is refused, what the GIDs of hosts become, and entries that lie. */
#include "base/atomics.h"
#include "segment/gid.h"
#include "segment/slot/wire.h"
#include "segment/wire.h"
#include "tests/segment/small_segment.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define MANY (NUPA_WIRES_MAX + 1)
#define LINK .width_lanes = 4, .speed_mtps = 32000, .state = NUPA_PORT_ACTIVE

static struct nupa_fabric *fabric;
static char why[512];

/* 192.0.2.n as a GID. */
static void address(uint8_t gid[16], uint32_t n)
{
	memset(gid, 0, 16);
	gid[10] = gid[11] = 0xff;
	gid[12] = 192;
	gid[14] = 2;
	gid[15] = (uint8_t)n;
}

static struct nupa_wire_info wish(uint32_t host, uint32_t remote, uint32_t local)
{
	struct nupa_wire_info wire = { .host = host,
				       .slot = 1,
				       .epoch = 7,
				       .state = NUPA_WIRE_STARTING,
				       .mtu_bytes = 1024,
				       .socket = "/run/keeper" };

	address(wire.remote, remote);
	address(wire.local, local);
	return wire;
}

static int add(const struct nupa_wire_info *wire)
{
	why[0] = 0;
	return nupa_wire_add(fabric, wire, why, sizeof(why));
}

/* Slot 1 is the keeper of host *keeper*. */
static void open_fabric(uint32_t n_hosts, uint32_t keeper)
{
	static struct nupa_host hosts[MANY];
	static struct nupa_port ports[2 * MANY];
	static struct nupa_route routes[MANY * MANY];

	for (uint32_t i = 0; i < n_hosts; i++) {
		hosts[i] = (struct nupa_host){ .port = 2 * i,
					       .link_layer = NUPA_LINK_ETHERNET,
					       .ipv4 = 0x0a000001 + i,
					       .mac = { 2, 0, 0, 0, 0, (uint8_t)i } };
		snprintf(hosts[i].name, sizeof(hosts[i].name), "host%u", i);
		ports[2 * i] =
		    (struct nupa_port){ .peer = 2 * i + 1, .node = i, .number = 1, LINK };
		ports[2 * i + 1] =
		    (struct nupa_port){ .peer = 2 * i, .is_switch = 1, .number = i + 1, LINK };
		snprintf(ports[2 * i].name, 32, "host%u/1", i);
		snprintf(ports[2 * i + 1].name, 32, "switch0/%u", i + 1);
	}
	for (uint32_t a = 0; a < n_hosts; a++)
		for (uint32_t b = 0; b < n_hosts; b++) {
			const uint16_t from = (uint16_t)(2 * a), to = (uint16_t)(2 * b);

			routes[a * n_hosts + b] =
			    a == b ? (struct nupa_route){ 0 }
				   : (struct nupa_route){ .hops = 4,
							  .port = { from, (uint16_t)(from + 1),
								    (uint16_t)(to + 1), to } };
		}
	if (nupa_fabric_create(NULL, "wires", &segment_small, hosts, n_hosts, ports, 2 * n_hosts,
			       routes, &fabric, why, sizeof(why))) {
		fprintf(stderr, "%s\n", why);
		abort();
	}
	fabric->slots[1].host = keeper;
	nupa_store_release(&fabric->slots[1].claim,
			   NUPA_CLAIM(nupa_fabric_owner(fabric), 7, NUPA_SLOT_LIVE));
}

TEST(a_wire_gives_its_host_the_remote_address_and_the_others_the_local_one)
{
	struct nupa_wire_info wire = wish(2, 7, 1), found;
	union ibv_gid gid, remote, local;
	uint32_t epoch;

	open_fabric(3, 2);
	memcpy(remote.raw, wire.remote, 16);
	memcpy(local.raw, wire.local, 16);
	CHECK_EQ(nupa_host_gids(fabric, 0), NUPA_GIDS);
	CHECK_EQ(nupa_host_of_gid(fabric, &remote), -ENOENT);
	CHECK_EQ(nupa_wires_mtu_bytes(fabric), 4096);
	epoch = nupa_load_relaxed(fabric->port_epoch);
	CHECK_EQ(add(&wire), 0);
	CHECK_EQ(nupa_load_relaxed(fabric->port_epoch), epoch + 1);
	CHECK_EQ(nupa_wire_of_host(fabric, 2), 0);
	CHECK_EQ(nupa_wire_of_host(fabric, 0), -ENOENT);
	CHECK_EQ(nupa_host_of_gid(fabric, &remote), 2);
	CHECK_EQ(nupa_host_of_gid(fabric, &local), -ENOENT);
	CHECK_EQ(nupa_host_gids(fabric, 0), NUPA_GIDS + 1);
	CHECK_EQ(nupa_host_gids(fabric, 2), NUPA_GIDS + 1);
	nupa_host_gid(fabric, 0, NUPA_GID_WIRE, &gid);
	CHECK(!memcmp(gid.raw, wire.local, 16));
	nupa_host_gid(fabric, 2, NUPA_GID_WIRE, &gid);
	CHECK(!memcmp(gid.raw, wire.remote, 16));
	CHECK_EQ(nupa_wires_mtu_bytes(fabric), 1024);
	CHECK_EQ(nupa_wire_list(fabric, &found, 1), 1);
	CHECK(found.kept && found.host == 2 && !strcmp(found.socket, "/run/keeper"));
	CHECK_EQ(nupa_wire_remove(fabric, 0), 0);
	CHECK_EQ(nupa_wire_remove(fabric, 0), -ENOENT);
	CHECK_EQ(nupa_wire_remove(fabric, NUPA_WIRES_MAX), -ENOENT);
	CHECK_EQ(nupa_wire_list(fabric, &found, 1), 0);
	CHECK_EQ(nupa_host_gids(fabric, 0), NUPA_GIDS);
	nupa_fabric_put(fabric);
}

TEST(wires_that_cannot_be_are_refused_with_a_reason)
{
	struct nupa_wire_info wire = wish(2, 7, 1);
	union ibv_gid own;

	open_fabric(4, 2);
	wire.host = 4;
	CHECK_EQ(add(&wire), -EINVAL);
	wire = wish(2, 7, 7);
	CHECK_EQ(add(&wire), -EINVAL);
	for (uint32_t mtu = 0; mtu <= 8192; mtu = mtu ? 2 * mtu : 128) {
		wire = wish(2, 7, 1);
		wire.mtu_bytes = mtu;
		CHECK_EQ(add(&wire), mtu < 256 || mtu > 4096 ? -EINVAL : 0);
		nupa_wire_remove(fabric, 0);
	}
	wire = wish(2, 7, 1);
	wire.medium = NUPA_WIRE_MEDIA;
	CHECK_EQ(add(&wire), -EINVAL);
	wire = wish(2, 7, 1);
	memset(wire.socket, 'x', sizeof(wire.socket));
	CHECK_EQ(add(&wire), -EINVAL);
	/* Another process is there. */
	wire = wish(2, 7, 1);
	wire.slot = 3;
	CHECK_EQ(add(&wire), -EBUSY);
	CHECK(strstr(why, "host2"));
	/* The address of another host. */
	wire = wish(2, 7, 1);
	nupa_host_gid(fabric, 0, NUPA_GID_IPV4, &own);
	memcpy(wire.remote, own.raw, 16);
	CHECK_EQ(add(&wire), -EEXIST);
	wire = wish(2, 7, 1);
	CHECK_EQ(add(&wire), 0);
	CHECK_EQ(add(&wire), -EEXIST);
	wire.host = 3;
	CHECK_EQ(add(&wire), -EEXIST);
	fabric->hosts[3].link_layer = NUPA_LINK_INFINIBAND;
	wire = wish(3, 8, 1);
	CHECK_EQ(add(&wire), -EINVAL);
	nupa_fabric_put(fabric);
}

TEST(the_table_holds_sixteen_wires_with_five_local_addresses)
{
	struct nupa_wire_info wire;

	open_fabric(MANY, 0);
	for (uint32_t i = 0; i < NUPA_WIRES_MAX; i++) {
		fabric->slots[1].host = i;
		wire = wish(i, 100 + i, 1 + (i < 5 ? i : 0));
		CHECK_EQ(add(&wire), i);
	}
	fabric->slots[1].host = NUPA_WIRES_MAX;
	wire = wish(NUPA_WIRES_MAX, 100 + NUPA_WIRES_MAX, 1);
	CHECK_EQ(add(&wire), -ENOSPC);
	CHECK(strstr(why, "16 wires"));
	CHECK_EQ(nupa_wire_remove(fabric, 9), 0);
	wire = wish(NUPA_WIRES_MAX, 100 + NUPA_WIRES_MAX, 6);
	CHECK_EQ(add(&wire), -ENOSPC);
	CHECK(strstr(why, "5 local addresses"));
	CHECK_EQ(nupa_host_gids(fabric, 9), NUPA_GID_TABLE_LEN);
	wire = wish(NUPA_WIRES_MAX, 100 + NUPA_WIRES_MAX, 5);
	CHECK_EQ(add(&wire), 9);
	nupa_fabric_put(fabric);
}

TEST(an_entry_of_a_dead_keeper_holds_no_longer_and_makes_room)
{
	struct nupa_wire_info wire = wish(2, 7, 1), found;
	union ibv_gid remote;

	open_fabric(3, 2);
	CHECK_EQ(add(&wire), 0);
	memcpy(remote.raw, wire.remote, 16);
	nupa_store_release(&fabric->slots[1].claim, NUPA_CLAIM(0, 7, NUPA_SLOT_FREE));
	CHECK(!nupa_wire_at(fabric, 0));
	CHECK_EQ(nupa_wire_of_host(fabric, 2), -ENOENT);
	CHECK_EQ(nupa_host_of_gid(fabric, &remote), -ENOENT);
	CHECK_EQ(nupa_wire_list(fabric, &found, 1), 1);
	CHECK(!found.kept);
	/* GIDs keep their places until another wire comes. */
	CHECK_EQ(nupa_host_gids(fabric, 0), NUPA_GIDS + 1);
	nupa_store_release(&fabric->slots[1].claim,
			   NUPA_CLAIM(nupa_fabric_owner(fabric), 8, NUPA_SLOT_LIVE));
	wire.epoch = 8;
	CHECK_EQ(add(&wire), 0);
	CHECK_EQ(nupa_wire_of_host(fabric, 2), 0);
	nupa_fabric_put(fabric);
}

/* W6 */
TEST(a_host_is_lost_until_its_keeper_is_there)
{
	struct nupa_wire_info wire = wish(2, 7, 1), found;

	open_fabric(3, 2);
	nupa_store_release(&fabric->slots[1].claim, NUPA_CLAIM(0, 7, NUPA_SLOT_FREE));
	for (uint32_t epoch = 8; epoch < 11; epoch++) { /* of the first one, and of later ones */
		CHECK_EQ(nupa_wire_is_lost(fabric, 2), epoch > 8);
		CHECK_EQ(nupa_wire_reserve(fabric, &wire, why, sizeof(why)), 0);
		CHECK(nupa_wire_is_lost(fabric, 2));
		nupa_store_release(&fabric->slots[1].claim,
				   NUPA_CLAIM(nupa_fabric_owner(fabric), epoch, NUPA_SLOT_LIVE));
		CHECK(nupa_wire_is_lost(fabric, 2));
		wire.epoch = epoch;
		wire.mtu_bytes = 4096;
		CHECK_EQ(add(&wire), 0);
		CHECK(!nupa_wire_is_lost(fabric, 2));
		CHECK_EQ(nupa_wire_of_host(fabric, 2), 0);
		CHECK_EQ(nupa_wire_list(fabric, &found, 1), 1);
		CHECK(found.kept && found.epoch == epoch && found.mtu_bytes == 4096);
		CHECK_EQ(nupa_wire_reserve(fabric, &wire, why, sizeof(why)), -EEXIST);
		CHECK(!nupa_wire_is_lost(fabric, 2));
		nupa_store_release(&fabric->slots[1].claim, NUPA_CLAIM(0, epoch, NUPA_SLOT_FREE));
	}
	/* With another address it is another wire. */
	address(wire.remote, 8);
	CHECK_EQ(nupa_wire_reserve(fabric, &wire, why, sizeof(why)), 0);
	CHECK_EQ(nupa_wire_list(fabric, &found, 1), 1);
	CHECK(!found.kept && !memcmp(found.remote, wire.remote, 16));
	nupa_fabric_put(fabric);
}

/* W3 */
TEST(no_word_of_an_entry_leads_out_of_the_tables)
{
	uint32_t state = 0x9e3779b9, lived = 0;
	struct nupa_wire_info found[NUPA_WIRES_MAX];
	uint8_t locals[NUPA_WIRE_LOCALS_MAX][16];

	open_fabric(3, 2);
	for (uint32_t round = 0; round < 20000; round++) {
		struct nupa_wire_info wire = wish(2, 7, 1);
		uint32_t *words = (uint32_t *)(void *)&fabric->sb->wires[0];
		union ibv_gid gid;

		nupa_wire_remove(fabric, 0);
		memset(&fabric->sb->wires[0], 0, sizeof(fabric->sb->wires[0]));
		CHECK_EQ(add(&wire), 0);
		for (uint32_t i = 0; i < 3; i++) {
			state = state * 1664525 + 1013904223;
			words[(state >> 8) % (sizeof(fabric->sb->wires[0]) / 4)] =
			    state & 64 ? state * 2654435761u : (state >> 4) & 255;
		}
		for (uint32_t host = 0; host < 3; host++) {
			const int wired = nupa_wire_of_host(fabric, host);

			CHECK(wired < (int)NUPA_WIRES_MAX);
			lived += wired >= 0;
			for (uint32_t i = 0; i < nupa_host_gids(fabric, host); i++)
				nupa_host_gid(fabric, host, (int)i, &gid);
		}
		CHECK(nupa_host_of_gid(fabric, &gid) < 3);
		CHECK(nupa_wire_is_mtu(nupa_wires_mtu_bytes(fabric)));
		CHECK(nupa_wire_locals(fabric, locals) <= NUPA_WIRE_LOCALS_MAX);
		for (uint32_t i = nupa_wire_list(fabric, found, NUPA_WIRES_MAX); i-- > 0;) {
			CHECK(found[i].host < 3 && found[i].state < NUPA_WIRE_STATES &&
			      found[i].medium < NUPA_WIRE_MEDIA);
			CHECK(memchr(found[i].socket, 0, sizeof(found[i].socket)));
		}
	}
	CHECK(lived > 10000);
	nupa_fabric_put(fabric);
}

int main(int argc, char **argv)
{
	return segment_main(argc, argv);
}
