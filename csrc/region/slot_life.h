/* SPDX-License-Identifier: BSD-3-Clause
 * Slots from their claim to their end, with all that their owners leave behind. */
#ifndef NUPA_SLOT_LIFE_H
#define NUPA_SLOT_LIFE_H

#include "segment/segment.h"

/* cffi: begin */
/* Frees the slots of processes that died; returns how many. */
int nupa_fabric_reap(struct nupa_fabric *fabric);
/* Frees the slots that other kernels' processes have on the host.  The caller knows that the host's
 * kernel has ended (a QEMU that is gone), and need not wait for the heartbeats.  Returns how many;
 * -EINVAL: no such host; -ENOMEM.
 */
int nupa_fabric_evict(struct nupa_fabric *fabric, uint32_t host);
/* cffi: end */

/* Claims a free slot for this process: state ATTACHING, identity (host, uid, comm, start time)
 * filled in.  The caller backs and fills its tables, then stores LIVE.  -EBUSY: none is free;
 * -ESTALE: others declared this process dead.  SOFTWARE: -EXDEV: this process is on another host;
 * -EADDRINUSE: a process of another kernel is on the host. */
int nupa_fabric_claim_slot(struct nupa_fabric *fabric, uint32_t host, uint32_t *slot);
/* Gives up a slot of this process, in any state.  The arena is cleared, the pool's extents and the
 * slot are freed, and the others are notified.  -EPERM if the slot is not this process's. */
int nupa_fabric_free_slot(struct nupa_fabric *fabric, uint32_t slot);

/* For the trunk: frees the slot of another machine here; false: it is free, or still in use. */
bool nupa_fabric_lose_slot(struct nupa_fabric *fabric, uint32_t slot);

#endif
