/* SPDX-License-Identifier: BSD-3-Clause
 * The two ends of a ring, compiled so that the test sees each access (support/weak.h). */
#include "tests/ordered/ordered.h"

void ordered_publish(struct nupa_tx *tx, const struct nupa_msg *msg)
{
	struct nupa_msg *line = nupa_tx_reserve(tx, 0, NULL);

	line->op = msg->op;
	line->flags = msg->flags;
	line->dest_qpn = msg->dest_qpn;
	line->src_qpn = msg->src_qpn;
	line->psn = msg->psn;
	line->length_bytes = msg->length_bytes;
	for (uint32_t i = 0; i < sizeof(line->data); i++)
		line->data[i] = msg->data[i];
	nupa_tx_publish(tx, line, 0);
}

enum nupa_rx_result ordered_take(struct nupa_rx *rx, struct nupa_msg *out)
{
	const uint8_t *payload;

	return nupa_rx_take(rx, out, &payload);
}

void ordered_release(struct nupa_rx *rx)
{
	nupa_rx_release(rx);
	nupa_rx_publish(rx);
}

bool ordered_receive(struct nupa_engine *engine, struct nupa_channel *channel)
{
	return ordered_express_drain(engine, channel, 1) == 1;
}
