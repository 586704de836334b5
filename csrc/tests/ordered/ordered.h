/* SPDX-License-Identifier: BSD-3-Clause
 * Code of the engine whose accesses a test sees: tests/channel/test_order.c. */
#ifndef NUPA_TESTS_ORDERED_H
#define NUPA_TESTS_ORDERED_H

#include "engine/transport/express.h"
#include "tests/ordered/weak.h"

/* One message with nothing beside it. */
void ordered_publish(struct nupa_tx *tx, const struct nupa_msg *msg);
enum nupa_rx_result ordered_take(struct nupa_rx *rx, struct nupa_msg *out);
/* Gives the line back, and says so. */
void ordered_release(struct nupa_rx *rx);

uint32_t ordered_express_drain(struct nupa_engine *engine, struct nupa_channel *channel,
			       uint32_t most);
/* The next line by it, as nupa_engine_drain has it. */
bool ordered_receive(struct nupa_engine *engine, struct nupa_channel *channel);

#endif
