/* SPDX-License-Identifier: BSD-3-Clause
 * Frames as captures have them, decoded for the injector (engine/inject). */
#ifndef NUPA_INJECT_FRAME_H
#define NUPA_INJECT_FRAME_H

#include "engine/inject/inject.h"

#include <stdbool.h>
#include <stdint.h>

/* cffi: begin */
/* Injects an Ethernet frame of RoCE v2: its IP destination names the host, its BTH the QP.  Returns
 * as nupa_inject; -EMSGSIZE: it is longer than nupa_injector_max_bytes. */
int nupa_inject_frame(struct nupa_injector *injector, const void *frame, uint32_t bytes,
		      uint64_t timeout_ns, struct nupa_inject_result *result);
/* cffi: end */

/* Decodes the frame; *payload lies in it.  False: it is not RoCE v2, or not all there. */
bool nupa_inject_decode(const uint8_t *frame, uint32_t bytes, struct nupa_roce_packet *out,
			const uint8_t **payload);

#endif
