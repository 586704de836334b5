/* SPDX-License-Identifier: BSD-3-Clause
 * Link addresses of a link's two ends: answers and asks for them (ARP, RFC 826; neighbour
 * discovery, RFC 4861), and answers echo requests (ping).  Plain functions of bytes. */
#ifndef NUPA_WIRE_NEIGHBOUR_H
#define NUPA_WIRE_NEIGHBOUR_H

#include "wire/frames/ethernet.h"

/* Looks at a frame that is not RoCE.  Learns remote_mac from what the remote says of itself; then
 * *learned is true.  Returns the bytes of the answer in reply[NUPA_FRAME_MAX_BYTES]; 0: none. */
uint32_t nupa_neighbour_answer(struct nupa_frame_link *link, const uint8_t *frame, uint32_t bytes,
			       uint8_t *reply, bool *learned);

#define NUPA_NEIGHBOUR_ASK_BYTES 86u
/* Writes a request for the remote's link address: its bytes. */
uint32_t nupa_neighbour_ask(const struct nupa_frame_link *link,
			    uint8_t ask[NUPA_NEIGHBOUR_ASK_BYTES]);

#endif
