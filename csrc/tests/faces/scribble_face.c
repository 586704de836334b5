/* SPDX-License-Identifier: BSD-3-Clause
 * tests/segment's hostile writes as a library: tests/system/hostile_segment.py aims them at a
 * machine's guests. */
#include "base/atomics.h"
#include "segment/segment_internal.h"
#include "tests/segment/scribble.h"
#include "tests/support/runner.h"

#include <string.h>
#include <time.h>

#define FACE __attribute__((visibility("default")))
#define STEP_NS 1000000
#define TURN_NS UINT64_C(1000000000)

FACE const char *face_scribble_area(uint32_t index);
FACE struct nupa_fabric *face_scribble_open(const char *path, char *why, size_t why_bytes);
FACE uint64_t face_scribble(struct nupa_fabric *fabric, uint32_t index, uint64_t seed, uint64_t ns,
			    uint32_t each_ms, const uint8_t *kept);
FACE uint64_t face_scribble_keep(const struct nupa_fabric *fabric, uint8_t *to);
FACE void face_scribble_heal(struct nupa_fabric *fabric, const uint8_t *from);

/* NULL: there are no more. */
const char *face_scribble_area(uint32_t index)
{
	return index < scribble_n_areas ? scribble_areas[index].name : NULL;
}

struct nupa_fabric *face_scribble_open(const char *path, char *why, size_t why_bytes)
{
	struct nupa_fabric *fabric = NULL;

	return nupa_fabric_open(path, &fabric, why, why_bytes) ? NULL : fabric;
}

/* All before the slots is as it was. */
static void mend(struct nupa_fabric *fabric, const uint8_t *from)
{
	memcpy(fabric->sb, from, fabric->geometry.slots_off);
	(void)nupa_fetch_add_seq(&fabric->sb->port_epoch, 1);
}

/* For so long, some writes each millisecond, in half of each turn.  In the other half all before
 * the slots is as in *kept*, so that something goes well.  Returns how many writes there were. */
uint64_t face_scribble(struct nupa_fabric *fabric, uint32_t index, uint64_t seed, uint64_t ns,
		       uint32_t each_ms, const uint8_t *kept)
{
	const struct timespec pause = { .tv_nsec = STEP_NS };
	const uint64_t begun_ns = test_now_ns();
	uint64_t n = 0, random = seed, passed_ns;
	bool whole = true;

	while ((passed_ns = test_now_ns() - begun_ns) < ns) {
		if (passed_ns % TURN_NS < TURN_NS / 2) {
			whole = false;
			for (uint32_t i = 0; i < each_ms; i++, n++)
				scribble_areas[index].write(fabric, &random);
		} else if (!whole) {
			whole = true;
			mend(fabric, kept);
		}
		nanosleep(&pause, NULL);
	}
	return n;
}

/* All before the slots: how many bytes, and if *to* is one, what they are. */
uint64_t face_scribble_keep(const struct nupa_fabric *fabric, uint8_t *to)
{
	if (to)
		memcpy(to, fabric->sb, fabric->geometry.slots_off);
	return fabric->geometry.slots_off;
}

/* The segment as it was when it was made, but for epochs: nobody is attached. */
void face_scribble_heal(struct nupa_fabric *fabric, const uint8_t *from)
{
	const struct nupa_superblock *sb = &fabric->geometry;

	for (uint32_t slot = 1; slot < sb->n_slots; slot++) {
		const uint32_t epoch = NUPA_CLAIM_EPOCH(fabric->slots[slot].claim) % NUPA_EPOCH_MAX;

		memset(&fabric->slots[slot], 0, sizeof(fabric->slots[slot]));
		fabric->slots[slot].claim = NUPA_CLAIM(0, epoch, NUPA_SLOT_FREE);
		nupa_fabric_clear_arena(fabric, slot);
	}
	memset(fabric->extents, 0, sb->n_extents * sizeof(uint32_t));
	nupa_fabric_release(fabric, sb->pool_off + sb->pool_bytes,
			    sb->segment_bytes - sb->pool_off - sb->pool_bytes);
	mend(fabric, from);
}
