/* SPDX-License-Identifier: BSD-3-Clause
 * Both ends of a ring in one process, and numbered messages from one to the other. */
#ifndef NUPA_TESTS_RING_ENDS_H
#define NUPA_TESTS_RING_ENDS_H

#include "segment/ring/ring.h"
#include "tests/support/runner.h"

struct ring {
	struct nupa_ring_header *header;
	struct nupa_tx tx;
	struct nupa_rx rx;
};

/* Sends message *number*, with so many bytes beside it; false: no room. */
static inline bool put(struct nupa_tx *tx, uint32_t number, uint32_t dma_bytes)
{
	uint8_t *payload = NULL;
	struct nupa_msg *msg = nupa_tx_reserve(tx, dma_bytes, &payload);

	if (!msg)
		return false;
	msg->op = NUPA_OP_SEND;
	msg->flags = dma_bytes ? NUPA_F_DMA : 0;
	msg->psn = number;
	msg->length_bytes = dma_bytes;
	for (uint32_t i = 0; i < dma_bytes; i++)
		payload[i] = (uint8_t)(number + i);
	nupa_tx_publish(tx, msg, dma_bytes);
	return true;
}

/* Takes a message, which has to be *number* with so many bytes. */
static inline bool get(struct nupa_rx *rx, uint32_t number, uint32_t dma_bytes)
{
	struct nupa_msg msg;
	const uint8_t *payload;
	enum nupa_rx_result result = nupa_rx_take(rx, &msg, &payload);

	if (result == NUPA_RX_EMPTY)
		return false;
	CHECK_EQ(result, NUPA_RX_MESSAGE);
	CHECK_EQ(msg.psn, number);
	CHECK_EQ(msg.length_bytes, dma_bytes);
	CHECK_EQ(payload != NULL, dma_bytes != 0);
	for (uint32_t i = 0; i < dma_bytes; i++)
		CHECK_EQ(payload[i], (uint8_t)(number + i));
	nupa_rx_release(rx);
	return true;
}

#endif
