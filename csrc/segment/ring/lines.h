/* SPDX-License-Identifier: BSD-3-Clause
 * How many lines of the fast channel were written. */
#ifndef NUPA_LINES_H
#define NUPA_LINES_H

#include "segment/segment.h"

/* cffi: begin */
/* Lines of the fast channel that were written, in the first laps of rings and in later ones.
 * `looks` is how often, at least, their producers must have looked at heads. */
struct nupa_lines_info {
	uint64_t first, again, looks;
};
/* By the slot's owner towards each host, by_host[n_hosts]; a free slot gives zeros. */
int nupa_fabric_lines(struct nupa_fabric *fabric, uint32_t slot, struct nupa_lines_info *by_host);
/* By attachments that are gone, from their host to another. */
int nupa_fabric_past_lines(struct nupa_fabric *fabric, uint32_t from, uint32_t to,
			   struct nupa_lines_info *lines);
/* cffi: end */

/* Adds the lines of a ring that is about to be emptied, of all rings, to these flows. */
int nupa_lines_add_ring(struct nupa_fabric *fabric, uint32_t slot, uint32_t peer,
			struct nupa_flow *flows);
void nupa_lines_add_rings(struct nupa_fabric *fabric, uint32_t slot, struct nupa_flow *flows);

#endif
