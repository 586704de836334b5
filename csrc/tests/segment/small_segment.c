/* SPDX-License-Identifier: BSD-3-Clause
 * A small segment for tests: see small_segment.h. */
#include "tests/segment/small_segment.h"
#include "base/atomics.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char segment_folder[] = "/dev/shm/nupa-test-segment-XXXXXX";
char segment_path[64], segment_other_path[64];
char segment_why[512];

/* host0/1 - switch0/1, switch0/2 - host1/1 */
struct nupa_host segment_hosts[SEGMENT_HOSTS] = {
	{ .name = "host0", .port = 0, .link_layer = NUPA_LINK_ETHERNET, .ipv4 = 0x0a000001 },
	{ .name = "host1", .port = 3, .link_layer = NUPA_LINK_ETHERNET, .ipv4 = 0x0a000002 },
};

#define LINK .width_lanes = 4, .speed_mtps = 32000, .state = NUPA_PORT_ACTIVE

struct nupa_port segment_ports[SEGMENT_PORTS] = {
	{ .name = "host0/1", .peer = 1, .node = 0, .number = 1, LINK },
	{ .name = "switch0/1", .peer = 0, .is_switch = 1, .node = 0, .number = 1, LINK },
	{ .name = "switch0/2", .peer = 3, .is_switch = 1, .node = 0, .number = 2, LINK },
	{ .name = "host1/1", .peer = 2, .node = 1, .number = 1, LINK },
};

struct nupa_route segment_routes[SEGMENT_HOSTS * SEGMENT_HOSTS] = {
	{ .hops = 0 },
	{ .hops = 4, .port = { 0, 1, 2, 3 } },
	{ .hops = 4, .port = { 3, 2, 1, 0 } },
	{ .hops = 0 },
};

int segment_main(int argc, char **argv)
{
	int status;

	CHECK(mkdtemp(segment_folder));
	snprintf(segment_path, sizeof(segment_path), "%s/a", segment_folder);
	snprintf(segment_other_path, sizeof(segment_other_path), "%s/b", segment_folder);
	status = test_main(argc, argv);
	if (!status)
		CHECK_EQ(rmdir(segment_folder), 0);
	return status;
}

const struct nupa_config segment_small = {
	.slots = 5,
	.ring_lines = 16,
	.dma_bytes = 4096,
	.qp_entries = 600,
	.mr_entries = 600,
	.extent_bytes = 4096,
	.pool_bytes = 8 * EXTENT,
};

int segment_try_create(const char *at, const struct nupa_config *config, struct nupa_fabric **out)
{
	segment_why[0] = 0;
	return nupa_fabric_create(at, "test", config, segment_hosts, SEGMENT_HOSTS, segment_ports,
				  SEGMENT_PORTS, segment_routes, out, segment_why,
				  sizeof(segment_why));
}

struct nupa_fabric *segment_create(const char *at, const struct nupa_config *config)
{
	struct nupa_fabric *fabric = NULL;

	if (segment_try_create(at, config, &fabric)) {
		fprintf(stderr, "%s\n", segment_why);
		abort();
	}
	return fabric;
}

void segment_claim(struct nupa_fabric *fabric, uint32_t slot, pid_t pid, uint32_t state,
		   uint64_t start_time)
{
	struct nupa_slot *entry = &fabric->slots[slot];
	uint32_t epoch = NUPA_CLAIM_EPOCH(entry->claim) + 1;

	entry->host = slot % SEGMENT_HOSTS;
	entry->start_time = start_time;
	memcpy(entry->comm, "tester", 7);
	nupa_store_release(&entry->claim, NUPA_CLAIM(pid, epoch, state));
}

uint64_t segment_arena_at(const struct nupa_fabric *fabric, uint32_t slot)
{
	return fabric->sb->arenas_off + (slot - 1) * fabric->sb->arena_bytes;
}

uint64_t segment_backed_bytes(const struct nupa_fabric *fabric)
{
	struct stat st;

	CHECK(fstat(fabric->fd, &st) == 0);
	return (uint64_t)st.st_blocks * 512;
}
