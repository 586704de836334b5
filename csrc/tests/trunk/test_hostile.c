/* SPDX-License-Identifier: BSD-3-Clause
 * A machine that sends nonsense: it costs the connection to that machine, and writes nothing but
 * what is that machine's.  Both trunks are turned by hand, in one thread. */
#include "tests/trunk/two.h"

#include "region/slot_life.h"
#include "segment/slot/machine.h"
#include "segment/slot/slot.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 30000u
#define KEYS 20000u
#define SEED UINT64_C(0x6b6e757274)

static uint64_t random_state;

static uint32_t any(uint32_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 16) % below;
}

static void seed_it(void)
{
	random_state = SEED ^ (uint64_t)time(NULL) << 20;
	printf("seed %#llx\n", (unsigned long long)random_state);
}

static void turn_both(struct two *two)
{
	uint64_t due_ns;

	for (uint32_t i = 0; i < 2; i++) {
		struct nupa_trunk *trunk = two->machines[i].trunk;

		trunk->peers[!i].retry_ns = 0;
		(void)nupa_trunk_turn(trunk, &due_ns);
	}
}

static struct nupa_peer *peer_of(struct two *two)
{
	return &two->machines[0].trunk->peers[1];
}

static void meet_again(struct two *two)
{
	const uint64_t until_ns = test_now_ns() + WAIT_NS;

	while (!peer_of(two)->up || !two->machines[1].trunk->peers[0].up) {
		CHECK(test_now_ns() < until_ns);
		turn_both(two);
	}
}

/* Numbers that are right, nearly right, and wrong. */
static uint32_t number(void)
{
	static const uint32_t numbers[] = { 0, 1, 2, 4, 5, 6, 8, 9, 63, 64, 255, 256, 1023, 1024 };
	const uint32_t kind = any(8);

	if (kind == 0)
		return any(UINT32_MAX);
	if (kind == 1)
		return UINT32_MAX - any(3);
	return kind < 4 ? any(10) : numbers[any(sizeof(numbers) / sizeof(numbers[0]))];
}

/* A slot of theirs as it might be, so that the rest is reached. */
static void forge_slot(struct nupa_told_slot *record)
{
	record->slot = 5 + any(4);
	record->state = any(4) ? NUPA_SLOT_LIVE : NUPA_SLOT_FREE;
	record->epoch = 1 + any(3);
	record->pid = 77;
	record->host = 1;
	record->qp_limit = any(2) ? 256 : number();
}

/* What follows the header of a window of the ring that `open_ring` opened. */
static void forge_window(struct two *two, uint32_t *words)
{
	words[0] = two->machines[0].trunk->first;
	words[1] = 5;
	words[2] = words[3] = any(4) ? 1 : number();
	words[6] = any(4) ? sizeof(uint32_t) : number();
	words[8] = any(70); /* the loop's key */
}

static uint32_t forge(struct two *two, uint8_t *data)
{
	struct nupa_told *record = (struct nupa_told *)(void *)data;
	uint32_t *words = (uint32_t *)(void *)(data + sizeof(*record));
	const uint32_t n = 2 * any(90);

	for (uint32_t i = 0; i < n; i++)
		words[i] = number();
	*record = (struct nupa_told){ .bytes = (uint32_t)sizeof(*record) + 4 * n,
				      .kind = (uint16_t)any(NUPA_TOLD_KINDS + 1) };
	if (record->kind == NUPA_TOLD_HELLO && any(100))
		record->kind = NUPA_TOLD_LINES;
	if (record->kind == NUPA_TOLD_SLOT && record->bytes >= sizeof(struct nupa_told_slot))
		forge_slot((struct nupa_told_slot *)(void *)data);
	if (n >= 2 && record->kind != NUPA_TOLD_SLOT && any(4)) { /* from theirs to ours */
		words[0] = 5 + any(4);
		words[1] = 1 + any(4);
	}
	if (record->kind == NUPA_TOLD_OPEN && n >= 4 && any(4)) {
		words[2] = 1 + any(3);
		words[3] = 1;
	}
	if (record->kind == NUPA_TOLD_LINES && n >= 20) {
		words[2] = 1; /* one line, whose tag may be right */
		words[4] = 1;
		((uint8_t *)&words[5])[1] = (uint8_t)any(256);
	}
	if (record->kind == NUPA_TOLD_WINDOW && n >= 72 &&
	    any(4)) /* of a ring from ours to theirs */
		forge_window(two, words);
	if (any(50) == 0)
		record->bytes = number();
	return any(50) ? (uint32_t)sizeof(*record) + 4 * n : number() % NUPA_PACKET_BYTES;
}

/* A ring from our first slot to one of theirs, in the life that forged windows name. */
static struct nupa_pair_out *open_ring(struct two *two)
{
	struct nupa_trunk *trunk = two->machines[0].trunk;
	struct nupa_ring_header *header = nupa_trunk_ring_of(trunk, trunk->first, 5);

	CHECK(header);
	nupa_store_release(&header->pair, UINT64_C(1) << 32 | 1);
	nupa_pair_open_out(trunk, trunk->first, 5);
	return nupa_pair_find_out(peer_of(two), trunk->first, 5);
}

/* What no other machine may change, of the slots with a process: claims and tables. */
static uint64_t sum_of_ours(const struct nupa_fabric *fabric)
{
	const uint8_t *superblock = (const uint8_t *)fabric->sb;
	uint64_t sum = 0;

	for (uint32_t slot = 1; slot < 5; slot++) {
		const struct nupa_slot *entry = &fabric->slots[slot];

		sum = sum * 31 + nupa_slot_claim(entry);
		sum = sum * 31 + entry->host + entry->qp_limit + entry->mr_limit;
		for (uint32_t to = 0; to < 5; to++)
			sum = sum * 31 + *nupa_contact(fabric, slot, to);
	}
	for (size_t i = 0; i < offsetof(struct nupa_superblock, port_epoch); i++)
		sum = sum * 31 + superblock[i];
	return sum * 31 + fabric->ports[test_fabric_port(0)].state;
}

TEST(forged_records_write_nothing_of_ours)
{
	static _Alignas(64) uint8_t data[NUPA_PACKET_BYTES];
	struct two *two = two_new(false);
	struct end *end;
	uint32_t unlocked = 0;
	uint64_t sum;

	seed_it();
	two_begin(two, 0);
	two_begin(two, 1);
	end = end_open(two->machines[0].fabric, &end_defaults);
	meet_again(two);
	sum = sum_of_ours(two->machines[0].fabric);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		const struct nupa_pair_out *ring = open_ring(two);
		const uint32_t bytes = forge(two, data);

		nupa_peer_events.received(two->machines[0].trunk, 1, peer_of(two)->link, data,
					  bytes);
		unlocked += ring && peer_of(two)->known && ring->window;
		if (i % 64 == 0)
			turn_both(two);
		if (!peer_of(two)->known)
			meet_again(two);
		if (i % 1024 == 0)
			CHECK_EQ(sum_of_ours(two->machines[0].fabric), sum);
	}
	CHECK_EQ(sum_of_ours(two->machines[0].fabric), sum);
	CHECK(unlocked);
	end_close(end);
	for (uint32_t i = 0; i < 2; i++)
		nupa_trunk_close(two->machines[i].trunk);
	two_free(two);
}

static void try_keys(struct two *two)
{
	static uint8_t memory[4096];
	struct nupa_carrier *carrier = two->machines[0].trunk->carrier;
	uint8_t right[NUPA_KEY_BYTES] = { 0 }, key[NUPA_KEY_BYTES];
	uint32_t bytes = 0;
	void *window = carrier->ops->window(carrier, memory, sizeof(memory), right, &bytes);

	CHECK(window);
	for (uint32_t i = 0; i < KEYS; i++) {
		const uint32_t n = any(2) ? bytes : any(NUPA_KEY_BYTES + 1);
		void *unlocked;

		memcpy(key, right, sizeof(key));
		for (uint32_t at = 0; at < n; at++)
			if (any(i % 4 + 1))
				key[at] = (uint8_t)any(256);
		unlocked = carrier->ops->unlock(carrier, peer_of(two)->link, key, n);
		CHECK_EQ(unlocked != NULL, n == bytes && memcmp(key, right, n) == 0);
		if (unlocked)
			carrier->ops->lock(carrier, unlocked);
		if (i % 64 == 0)
			turn_both(two);
	}
	carrier->ops->unwindow(carrier, window);
}

static void *run_by_ucx(void *arg)
{
	struct two *two = arg;

	two_begin(two, 0);
	two_begin(two, 1);
	meet_again(two);
	try_keys(two);
	meet_again(two);
	for (uint32_t i = 0; i < 2; i++)
		nupa_trunk_close(two->machines[i].trunk);
	return NULL;
}

/* UCX trusts the bytes of a key.  Not in the main thread: LeakSanitizer ends
 * where that one has used UCX. */
TEST(keys_that_are_nonsense_unlock_nothing_by_ucx)
{
	struct two *two = two_new(true);
	pthread_t thread;

	seed_it();
	CHECK_EQ(pthread_create(&thread, NULL, run_by_ucx, two), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	two_free(two);
}
