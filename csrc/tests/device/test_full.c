/* SPDX-License-Identifier: BSD-3-Clause
 * A fabric without a free attachment: the refusal says whose they are, and what to do. */
#include "region/slot_life.h"
#include "tests/support/end.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Why a device cannot be opened where this process has all attachments. */
static void refused(uint32_t slots, char why[512])
{
	const struct nupa_config config = {
		.slots = slots,
		.ring_lines = TEST_RING_LINES,
		.dma_bytes = TEST_DMA_BYTES,
		.qp_entries = 1024,
		.mr_entries = 1024,
		.extent_bytes = 4096,
		.pool_bytes = 4096,
	};
	struct nupa_fabric *fabric = test_fabric_of(&config);
	uint32_t slot;

	for (uint32_t i = 1; i < slots; i++) {
		CHECK_EQ(nupa_fabric_claim_slot(fabric, 0, &slot), 0);
		snprintf(fabric->slots[slot].comm, sizeof(fabric->slots[slot].comm), "a\x1b%u", i);
	}
	CHECK(!nupa_open_host(fabric, 0, NUPA_MOVER_NONE, why, 512));
	CHECK_EQ(errno, EUSERS);
	for (slot = 1; slot < slots; slot++)
		CHECK_EQ(nupa_fabric_free_slot(fabric, slot), 0);
	nupa_fabric_put(fabric);
}

TEST(few_attachments_are_all_named_and_more_are_advised)
{
	char why[512], wanted[128];

	refused(4, why);
	snprintf(wanted, sizeof(wanted),
		 "are in use, by a?1 (pid %d), a?2 (pid %d), a?3 (pid %d): ", getpid(), getpid(),
		 getpid());
	CHECK(strstr(why, wanted));
	CHECK(strstr(why, "or make it with more slots"));
}

TEST(of_as_many_as_there_can_be_the_first_are_named_and_no_more_are_advised)
{
	char why[512];

	refused(NUPA_SLOTS_MAX, why);
	CHECK(strstr(why, "all 1022 attachments"));
	CHECK(strstr(why, " and 1018 more: end a process"));
	CHECK(!strstr(why, "slots"));
}
