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

/* The link that is left of `count` equal ones for these digits, which it takes from them. */
static inline uint32_t digit_take(uint16_t *digits, uint32_t count)
{
	const uint32_t product = *digits * count;

	*digits = (uint16_t)product;
	return product >> 16;
}

#endif
