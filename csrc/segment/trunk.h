/* SPDX-License-Identifier: BSD-3-Clause
 * A fabric that spans machines, as the processes of one machine see it (trunk_layout.h). */
#ifndef NUPA_SEGMENT_TRUNK_H
#define NUPA_SEGMENT_TRUNK_H

#include "segment/segment.h"

/* cffi: begin */
/* How many machines share the fabric; 0: it is of one machine, without a trunk. */
uint32_t nupa_fabric_n_machines(const struct nupa_fabric *fabric);
/* The machine that has the host: 0 where there is no trunk; -EINVAL: no such host. */
int nupa_fabric_host_machine(const struct nupa_fabric *fabric, uint32_t host);
/* cffi: end */

static inline bool nupa_fabric_has_trunk(const struct nupa_fabric *fabric)
{
	return fabric->geometry.flags & NUPA_SEGMENT_TRUNK;
}

/* The slots of a machine, [first, end). */
void nupa_machine_slots(const struct nupa_fabric *fabric, uint32_t machine, uint32_t *first,
			uint32_t *end);
/* Whether the slot is another machine's; false where there is no trunk. */
bool nupa_slot_trunked(const struct nupa_fabric *fabric, uint32_t slot);
/* Whether the host is another machine's; false where there is no trunk. */
bool nupa_host_trunked(const struct nupa_fabric *fabric, uint32_t host);
/* The machine that says whether a port is up: its host's, or that of the host at the other end of
 * its link; those between switches are the first machine's. */
uint32_t nupa_port_machine(const struct nupa_fabric *fabric, uint32_t port);
/* The machine of a slot that is not 0. */
uint32_t nupa_slot_machine(const struct nupa_fabric *fabric, uint32_t slot);

#endif
