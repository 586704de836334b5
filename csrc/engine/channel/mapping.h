/* SPDX-License-Identifier: BSD-3-Clause
 * Mappings of peers' memfds, for windows on regions there. */
#ifndef NUPA_MAPPING_H
#define NUPA_MAPPING_H

#include "engine/channel/channel.h"

/* Finds the memfd that the peer has now; false: it has none, or it is not to be had. */
bool nupa_mapping_find(struct nupa_channel *channel);
/* The same, and a mapping with [offset, +bytes) of that file, and where that begins; NULL: there is
 * none.  Each is given back by nupa_mapping_put. */
struct nupa_mapping *nupa_mapping_get(struct nupa_channel *channel, uint64_t offset, uint64_t bytes,
				      uint8_t **base);
void nupa_mapping_put(struct nupa_channel *channel, struct nupa_mapping *mapping);
/* After the last was given back. */
void nupa_mapping_close(struct nupa_channel *channel);
/* So many there are at most in this process, or a few more; 0: not known yet.  Tests set it. */
extern uint32_t nupa_mappings_max;

#endif
