/* SPDX-License-Identifier: BSD-3-Clause
 * The segment's slots: claimed, freed, reaped; flows, and ports that go down. */
#include "tests/segment/small_segment.h"
#include "base/atomics.h"
#include "region/slot_life.h"
#include "region/region.h"
#include "segment/layout/geometry.h"
#include "segment/slot/counters.h"
#include "segment/slot/slot.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(questions_about_unused_slots_back_no_memory)
{
	struct nupa_fabric *fabric = segment_create(NULL, &segment_small);
	uint64_t before = segment_backed_bytes(fabric);
	struct nupa_slot_info info;
	struct nupa_flow_info flow = { .xmit_bytes = 7 };

	segment_claim(fabric, 2, getpid(), NUPA_SLOT_LIVE,
		      nupa_process_start_time((uint32_t)getpid()));
	segment_claim(fabric, 3, getpid(), NUPA_SLOT_LIVE,
		      nupa_process_start_time((uint32_t)getpid()));
	fabric->slots[2].qp_limit = UINT32_MAX;
	fabric->slots[2].mr_limit = UINT32_MAX;
	CHECK(nupa_fabric_slot(fabric, 1, &info) == -ENOENT);
	CHECK(nupa_fabric_slot(fabric, 0, &info) == -EINVAL);
	CHECK(nupa_fabric_slot(fabric, 5, &info) == -EINVAL);
	CHECK(nupa_fabric_slot(fabric, 2, &info) == 0 && info.qps == 0 && info.mrs == 0);
	CHECK(info.pid == (uint32_t)getpid() && info.alive && info.host == 0 && info.epoch == 1);
	CHECK(strcmp(info.comm, "tester") == 0);
	CHECK(nupa_fabric_flow(fabric, 1, 1, &flow) == 0 && flow.xmit_bytes == 0);
	CHECK(nupa_fabric_flow(fabric, 1, 2, &flow) == -EINVAL);
	CHECK(nupa_fabric_mover(fabric, 2, 3) == -ENOENT);
	CHECK(nupa_fabric_mover(fabric, 1, 3) == -ENOENT);
	CHECK(segment_backed_bytes(fabric) == before);
	nupa_fabric_put(fabric);
}

TEST(tables_flows_and_movers_are_read)
{
	struct nupa_fabric *fabric = segment_create(NULL, &segment_small);
	struct nupa_arena_map map = nupa_arena_map(fabric->sb);
	uint8_t *arena = nupa_fabric_arena(fabric, 2);
	struct nupa_ring_header *ring;
	struct nupa_slot_info info;
	struct nupa_flow_info flow;

	CHECK(nupa_fabric_back(fabric, segment_arena_at(fabric, 2), fabric->sb->arena_bytes) == 0);
	CHECK(nupa_fabric_back(fabric, fabric->sb->segment_bytes, 1) == -EINVAL);
	CHECK(nupa_fabric_back(fabric, UINT64_MAX, 2) == -EINVAL);
	CHECK(nupa_fabric_back(fabric, 0, 0) == -EINVAL);
	segment_claim(fabric, 2, getpid(), NUPA_SLOT_LIVE, 0);
	segment_claim(fabric, 3, getpid(), NUPA_SLOT_LIVE, 0);
	fabric->slots[2].qp_limit = 500;
	fabric->slots[2].mr_limit = 300;
	for (uint32_t i = 0; i < 600; i += 100) {
		((struct nupa_qp_entry *)(arena + map.qps_off))[i].qpn = 2u << 16 | i;
		((struct nupa_mr_entry *)(arena + map.mrs_off))[i].key = i << 12 | 1;
	}
	((struct nupa_flow *)(arena + map.flows_off))[1].xmit_bytes = 12345;
	ring = (struct nupa_ring_header *)(arena + map.rings_off + 3 * map.ring_stride);
	ring->pair = UINT64_C(1) << 32 | 1;
	ring->mover = 3;
	CHECK(nupa_fabric_slot(fabric, 2, &info) == 0);
	CHECK(info.mrs == 3);
	CHECK(info.qps == 5);
	CHECK(nupa_fabric_flow(fabric, 2, 1, &flow) == 0 && flow.xmit_bytes == 12345);
	CHECK(nupa_fabric_mover(fabric, 2, 3) == 3);
	CHECK(nupa_fabric_mover(fabric, 3, 2) == -ENOENT);
	ring->mover = 6;
	CHECK(nupa_fabric_mover(fabric, 2, 3) == -ENOENT);
	ring->mover = 3;
	ring->pair++;
	CHECK(nupa_fabric_mover(fabric, 2, 3) == -ENOENT);
	nupa_fabric_put(fabric);
}

/* A child that has ended; zombie: not yet waited for. */
static pid_t dead_child(bool zombie)
{
	siginfo_t info;
	pid_t child = fork();

	if (child == 0)
		_exit(0);
	CHECK(waitid(P_PID, (id_t)child, &info, WEXITED | (zombie ? WNOWAIT : 0)) == 0);
	return child;
}

TEST(liveness_needs_pid_and_start_time)
{
	uint64_t mine = nupa_process_start_time((uint32_t)getpid());
	pid_t zombie = dead_child(true);
	pid_t gone = dead_child(false);

	CHECK(mine != 0);
	CHECK(nupa_process_alive((uint32_t)getpid(), mine));
	CHECK(nupa_process_alive((uint32_t)getpid(), 0));
	CHECK(!nupa_process_alive((uint32_t)getpid(), mine + 1));
	CHECK(!nupa_process_alive((uint32_t)zombie, 0));
	CHECK(!nupa_process_alive((uint32_t)gone, 0));
	CHECK(nupa_process_start_time((uint32_t)gone) == 0);
	CHECK(!nupa_process_alive(0, 0));
	CHECK(!nupa_process_alive(UINT32_MAX, 0));
	CHECK(nupa_process_alive(1, 0));
	waitpid(zombie, NULL, 0);
}

TEST(reaping_frees_the_dead_and_spares_the_living)
{
	struct nupa_fabric *fabric = segment_create(NULL, &segment_small);
	pid_t gone = dead_child(false);
	uint64_t mine = nupa_process_start_time((uint32_t)getpid());
	uint64_t before;
	uint8_t *arena = nupa_fabric_arena(fabric, 1);

	before = segment_backed_bytes(fabric);
	CHECK(nupa_fabric_back(fabric, segment_arena_at(fabric, 1), fabric->sb->arena_bytes) == 0);
	memset(arena, 0x5a, fabric->sb->arena_bytes);
	segment_claim(fabric, 1, gone, NUPA_SLOT_LIVE, 1);
	segment_claim(fabric, 2, gone, NUPA_SLOT_ATTACHING, 0);
	segment_claim(fabric, 3, gone, NUPA_SLOT_REAPING, mine);
	segment_claim(fabric, 4, getpid(), NUPA_SLOT_LIVE, mine);
	fabric->slots[1].qp_limit = 5;
	fabric->slots[1].hazard = 9;
	fabric->slots[1].next_qp_index = 77;
	fabric->extents[3] = NUPA_EXTENT(1, 1);
	fabric->extents[4] = NUPA_EXTENT(4, 1);
	fabric->extents[5] = (uint32_t)gone;
	fabric->extents[6] = (uint32_t)getpid();
	CHECK(nupa_fabric_reap(fabric) == 3);
	for (uint32_t slot = 1; slot <= 3; slot++)
		CHECK(fabric->slots[slot].claim == NUPA_CLAIM(0, 1, NUPA_SLOT_FREE));
	CHECK(NUPA_CLAIM_STATE(fabric->slots[4].claim) == NUPA_SLOT_LIVE);
	CHECK(fabric->slots[4].contact_epoch == 1);
	CHECK(fabric->slots[1].qp_limit == 0 && fabric->slots[1].hazard == 0);
	CHECK(fabric->slots[1].next_qp_index == 77);
	CHECK(fabric->extents[3] == 0 && fabric->extents[4] != 0);
	CHECK(fabric->extents[5] == 0 && fabric->extents[6] != 0);
	CHECK(segment_backed_bytes(fabric) == before);
	CHECK(arena[0] == 0 && arena[fabric->sb->arena_bytes - 1] == 0);
	CHECK(nupa_fabric_reap(fabric) == 0);
	/* A pid that was given out again is not the owner. */
	fabric->slots[4].start_time++;
	CHECK(nupa_fabric_reap(fabric) == 1);
	nupa_fabric_put(fabric);
}

TEST(traffic_outlives_its_attachment_and_keeps_its_host)
{
	struct nupa_fabric *fabric = segment_create(NULL, &segment_small);
	struct nupa_flow_info flow;

	for (uint32_t round = 1; round <= 3; round++) {
		struct nupa_flow *flows = (struct nupa_flow *)nupa_fabric_arena(fabric, 1);

		segment_claim(fabric, 1, getpid(), NUPA_SLOT_LIVE, 0);
		fabric->slots[1].host = round % 2;
		CHECK(nupa_fabric_back(fabric, segment_arena_at(fabric, 1), 4096) == 0);
		CHECK(flows[0].xmit_bytes == 0);
		flows[0] = (struct nupa_flow){ 1000, 10, 2000, 20, 3, 4, 0, 0 };
		CHECK(nupa_fabric_flow(fabric, 1, 0, &flow) == 0 && flow.xmit_bytes == 1000);
		CHECK(nupa_fabric_free_slot(fabric, 1) == 0);
		CHECK(nupa_fabric_flow(fabric, 1, 0, &flow) == 0 && flow.xmit_bytes == 0);
	}
	CHECK(nupa_fabric_past_flow(fabric, 1, 0, &flow) == 0);
	CHECK(flow.xmit_bytes == 2000 && flow.xmit_packets == 20 && flow.rcv_bytes == 4000);
	CHECK(flow.rcv_packets == 40 && flow.xmit_wait == 6 && flow.xmit_discards == 8);
	CHECK(nupa_fabric_past_flow(fabric, 0, 0, &flow) == 0 && flow.xmit_bytes == 1000);
	CHECK(nupa_fabric_past_flow(fabric, 0, 1, &flow) == 0 && flow.xmit_bytes == 0);
	CHECK(nupa_fabric_past_flow(fabric, 2, 0, &flow) == -EINVAL);
	CHECK(nupa_fabric_past_flow(fabric, 0, 2, &flow) == -EINVAL);
	nupa_fabric_put(fabric);
}

TEST(slots_are_claimed_until_none_is_free)
{
	struct nupa_fabric *fabric = segment_create(NULL, &segment_small);
	struct nupa_slot_info info;
	char comm[16] = "";
	uint32_t slot = 0;

	CHECK(nupa_fabric_claim_slot(fabric, SEGMENT_HOSTS, &slot) == -EINVAL);
	for (uint32_t expected = 1; expected <= 4; expected++)
		CHECK(nupa_fabric_claim_slot(fabric, 1, &slot) == 0 && slot == expected);
	CHECK(nupa_fabric_claim_slot(fabric, 1, &slot) == -EBUSY);
	CHECK(nupa_fabric_slot(fabric, 2, &info) == 0 && info.state == NUPA_SLOT_ATTACHING);
	CHECK(info.host == 1 && info.alive && info.epoch == 1 && info.uid == geteuid());
	CHECK(prctl(PR_GET_NAME, comm) == 0); /* an emulator's, under one */
	CHECK(strcmp(info.comm, comm) == 0);
	CHECK(fabric->slots[2].start_time == nupa_process_start_time((uint32_t)getpid()));

	CHECK(nupa_fabric_free_slot(fabric, 2) == 0);
	CHECK(nupa_fabric_claim_slot(fabric, 0, &slot) == 0 && slot == 2);
	CHECK(NUPA_CLAIM_EPOCH(fabric->slots[2].claim) == 2);
	fabric->slots[3].claim = NUPA_CLAIM(0, NUPA_EPOCH_MAX, NUPA_SLOT_FREE);
	CHECK(nupa_fabric_claim_slot(fabric, 1, &slot) == 0 && slot == 3);
	CHECK(NUPA_CLAIM_EPOCH(fabric->slots[3].claim) == 1);
	nupa_fabric_put(fabric);
}

TEST(an_owner_frees_its_slot_and_nobody_else_does)
{
	struct nupa_fabric *fabric = segment_create(NULL, &segment_small);

	segment_claim(fabric, 1, getpid(), NUPA_SLOT_ATTACHING, 0);
	segment_claim(fabric, 2, 1, NUPA_SLOT_LIVE, 0);
	CHECK(nupa_fabric_free_slot(fabric, 1) == 0);
	CHECK(fabric->slots[1].claim == NUPA_CLAIM(0, 1, NUPA_SLOT_FREE));
	CHECK(nupa_fabric_free_slot(fabric, 1) == -EPERM);
	CHECK(nupa_fabric_free_slot(fabric, 2) == -EPERM);
	CHECK(nupa_fabric_free_slot(fabric, 0) == -EINVAL);
	CHECK(nupa_fabric_free_slot(fabric, 5) == -EINVAL);
	CHECK(fabric->slots[2].contact_epoch == 1);
	nupa_fabric_put(fabric);
}

static void *sleep_on_doorbell(void *argument)
{
	struct nupa_slot *slot = argument;

	while (nupa_load_seq(&slot->sleeping))
		syscall(SYS_futex, &slot->sleeping, FUTEX_WAIT, 1, NULL, NULL, 0);
	return NULL;
}

TEST(a_port_that_goes_down_is_counted_and_wakes_sleepers)
{
	struct nupa_fabric *fabric = segment_create(NULL, &segment_small);
	pthread_t sleeper;

	segment_claim(fabric, 1, getpid(), NUPA_SLOT_LIVE, 0);
	fabric->slots[1].sleeping = 1;
	CHECK(pthread_create(&sleeper, NULL, sleep_on_doorbell, &fabric->slots[1]) == 0);
	CHECK(nupa_fabric_set_port(fabric, 0, NUPA_PORT_DOWN) == 0);
	CHECK(pthread_join(sleeper, NULL) == 0);
	CHECK(nupa_fabric_port(fabric, 0)->state == NUPA_PORT_DOWN);
	CHECK(nupa_fabric_port(fabric, 0)->link_downed == 1);
	CHECK(fabric->sb->port_epoch == 1);
	CHECK(nupa_fabric_set_port(fabric, 0, NUPA_PORT_DOWN) == 0);
	CHECK(fabric->sb->port_epoch == 1);
	CHECK(nupa_fabric_set_port(fabric, 0, NUPA_PORT_ACTIVE) == 0);
	CHECK(nupa_fabric_port(fabric, 0)->link_downed == 1 && fabric->sb->port_epoch == 2);
	CHECK(nupa_fabric_set_port(fabric, SEGMENT_PORTS, NUPA_PORT_DOWN) == -EINVAL);
	CHECK(nupa_fabric_set_port(fabric, 0, 2) == -EINVAL);
	nupa_fabric_put(fabric);
}

/* With times as they are given, *looks* times. */
static bool hear(struct nupa_fabric *fabric, uint64_t *now_ns, uint32_t *known, uint32_t looks)
{
	bool silent = false;

	while (looks--) {
		*now_ns += NUPA_BEAT_MS * UINT64_C(1000000);
		silent |= nupa_beat_look(fabric, *now_ns, known);
	}
	return silent;
}

TEST(each_attachment_of_a_process_learns_who_fell_silent)
{
	struct nupa_config machines = segment_small;
	uint32_t one = 0, other = 0;
	struct nupa_fabric *fabric;
	uint64_t now_ns = 0;

	machines.flags = NUPA_SEGMENT_MACHINES;
	machines.segment_bytes = UINT64_C(32) << 20;
	machines.pool_bytes = 0;
	fabric = segment_create(NULL, &machines);
	segment_claim(fabric, 2, 7, NUPA_SLOT_LIVE, 0);
	fabric->slots[2].claim |= UINT64_C(2) << 54; /* of another kernel */
	CHECK(nupa_slot_elsewhere(fabric, fabric->slots[2].claim));
	CHECK(!hear(fabric, &now_ns, &one, NUPA_BEATS_MISSED));
	CHECK(!nupa_beat_look(fabric, now_ns, &other));
	fabric->slots[2].heartbeat++;
	CHECK(!hear(fabric, &now_ns, &one, NUPA_BEATS_MISSED));
	CHECK(hear(fabric, &now_ns, &one, 1));
	CHECK(!nupa_beat_heard(fabric, 2, fabric->slots[2].claim));
	CHECK(nupa_beat_look(fabric, now_ns, &other)); /* the first one looked */
	CHECK(!hear(fabric, &now_ns, &one, 1) && !hear(fabric, &now_ns, &other, 1));
	nupa_fabric_put(fabric);
}

int main(int argc, char **argv)
{
	return segment_main(argc, argv);
}
