/* SPDX-License-Identifier: BSD-3-Clause
 * The way of one packet, in five steps; the code names their numbers:
 *
 * 1 sender.c makes it when its endpoint's link is free.
 * 2 port.c sends it: the link is busy, and the packet arrives later.
 * 3 switch.c chooses its next link, where it is sent at once or waits.
 * 4 A full buffer drops it, trims it, or holds it back by credits or a pause.
 * 5 receiver.c counts it, acknowledges it, and completes the operation. */
#ifndef NUPA_MODEL_SWITCH_H
#define NUPA_MODEL_SWITCH_H

#include "model/engine.h"

/* Which of `count` equal links these digits name; they keep those for the switches ahead. */
static inline uint32_t digit_take(const struct nupa_model_protocol *protocol, uint16_t *digits,
				  uint32_t count)
{
	const uint32_t product = *digits * count, number = *digits;

	if (count < 2)
		return 0;
	if (protocol->spread == NUPA_MODEL_PER_DESTINATION) {
		*digits = (uint16_t)(number / count);
		return number % count;
	}
	*digits = (uint16_t)product;
	return product >> 16;
}

#endif
