/* SPDX-License-Identifier: BSD-3-Clause
 * Machines of a fabric as its trunk sees them. */
#ifndef NUPA_SLOT_MACHINE_H
#define NUPA_SLOT_MACHINE_H

#include "segment/trunk.h"

/* cffi: begin */
/* A machine of a fabric that spans several. */
struct nupa_machine_info {
	uint32_t state; /* enum nupa_machine_state; our own is UP while our trunk runs */
	uint32_t own;   /* it is this machine */
	uint32_t first_slot, end_slot; /* its slots are [first, end) */
	uint32_t losses;               /* how often it was lost */
	uint64_t rtt_ns;               /* between the trunks, smoothed; 0: not known */
	uint64_t sent_bytes, sent_messages, received_bytes, received_messages;
	uint64_t refused;  /* parts of messages that were not obeyed */
	uint64_t since_ns; /* CLOCK_REALTIME: since when it has that state; 0: not known */
};
/* 0, or -EINVAL: no such machine. */
int nupa_fabric_machine(const struct nupa_fabric *fabric, uint32_t machine,
			struct nupa_machine_info *info);
/* The pid of the trunk process; 0: none runs. */
uint32_t nupa_fabric_trunk_pid(const struct nupa_fabric *fabric);
/* cffi: end */

/* Whether the trunk process lives. */
bool nupa_trunk_alive(const struct nupa_fabric *fabric);

#endif
