/* SPDX-License-Identifier: BSD-3-Clause
 * Hosts that are not ready take no new process; which message and errno each state has. */
#include "engine/attachment/attachment.h"
#include "segment/control/admit.h"
#include "tests/support/end.h"

#include <errno.h>
#include <string.h>

static struct nupa_fabric *fabric_of_two(void)
{
	const struct nupa_config config = {
		.slots = 4,
		.ring_lines = TEST_RING_LINES,
		.dma_bytes = TEST_DMA_BYTES,
		.qp_entries = 1024,
		.mr_entries = 1024,
		.extent_bytes = 4096,
		.pool_bytes = 4096,
	};

	return test_fabric_of(&config);
}

static void refused_with(struct nupa_fabric *fabric, uint32_t state, const char *said)
{
	char why[512] = "";

	fabric->controls[1].state = state;
	CHECK(!nupa_open_host(fabric, 1, NUPA_MOVER_NONE, why, sizeof(why)));
	CHECK_EQ(errno, EHOSTDOWN);
	CHECK(strstr(why, said));
	CHECK(!nupa_engine_attach(fabric, 1, why, sizeof(why)));
	CHECK_EQ(errno, EHOSTDOWN);
}

TEST(each_state_but_ready_refuses_and_names_the_remedy)
{
	struct nupa_fabric *fabric = fabric_of_two();
	struct ibv_context *context;
	char why[512];

	refused_with(fabric, NUPA_HOST_ABSENT, "is absent: `nupa host add ");
	refused_with(fabric, NUPA_HOST_ONBOARDING, "is being checked: ");
	refused_with(fabric, NUPA_HOST_DRAINING, "is draining and takes no new process: ");
	refused_with(fabric, NUPA_HOST_FAILED, "was not admitted: `nupa events` says why");
	refused_with(fabric, NUPA_HOST_STATES, "was not admitted: "); /* one past the last */
	refused_with(fabric, UINT32_MAX, "was not admitted: ");
	/* No refusal kept a slot: all three are free. */
	fabric->controls[1].state = NUPA_HOST_READY;
	context = nupa_open_host(fabric, 1, NUPA_MOVER_NONE, why, sizeof(why));
	CHECK(context);
	CHECK_EQ(container_of(context, struct nupa_context, ibv.context)->engine->slot_index, 1);
	nupa_close_device(context);
	nupa_fabric_put(fabric);
}

TEST(a_process_on_a_draining_host_opens_its_device_again_until_the_host_is_gone)
{
	struct nupa_fabric *fabric = fabric_of_two();
	struct ibv_context *first, *second;
	char why[512];

	first = nupa_open_host(fabric, 1, NUPA_MOVER_NONE, why, sizeof(why));
	CHECK(first);
	fabric->controls[1].state = NUPA_HOST_DRAINING;
	second = nupa_open_host(fabric, 1, NUPA_MOVER_NONE, why, sizeof(why));
	CHECK(second);
	nupa_close_device(second);
	fabric->controls[1].state = NUPA_HOST_ABSENT;
	CHECK(!nupa_open_host(fabric, 1, NUPA_MOVER_NONE, why, sizeof(why)));
	CHECK_EQ(errno, EHOSTDOWN);
	nupa_close_device(first);
	nupa_fabric_put(fabric);
}

TEST(a_host_that_is_not_ready_is_not_chosen)
{
	struct nupa_fabric *fabric = fabric_of_two();

	CHECK_EQ(nupa_quietest_host(fabric), 0);
	fabric->controls[0].state = NUPA_HOST_ABSENT;
	CHECK_EQ(nupa_quietest_host(fabric), 1);
	nupa_fabric_put(fabric);
}
