/* SPDX-License-Identifier: BSD-3-Clause
 * A packet on its way through the layers of decode.c and transport.c. */
#ifndef NUPA_PACKET_WALK_H
#define NUPA_PACKET_WALK_H

#include "base/bytes.h"
#include "packet/decode.h"

#include <stdbool.h>

struct walk {
	const uint8_t *data;
	uint32_t at;     /* the next header */
	uint32_t end;    /* bytes behind it are not the packet's, by the lengths seen so far */
	bool cut;        /* end is where the capture ends; the packet continues */
	uint32_t routed; /* the first header that the ICRC covers */
	uint32_t udp;    /* 0: not in UDP */
	bool local;      /* begins with an LRH */
	struct nupa_headers *out;
};

/* The next header, of so many bytes; NULL: it is incomplete, which is the fault. */
static inline const uint8_t *take(struct walk *w, uint32_t bytes)
{
	const uint8_t *header = w->data + w->at;

	if (w->end - w->at < bytes) {
		w->out->fault = w->cut ? NUPA_FAULT_CUT : NUPA_FAULT_LENGTH;
		return NULL;
	}
	w->at += bytes;
	return header;
}

/* From a base transport header on.  flags: enum nupa_decode_flag. */
void nupa_decode_transport(struct walk *w, uint32_t flags);

#endif
