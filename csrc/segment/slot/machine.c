/* SPDX-License-Identifier: BSD-3-Clause
 * Machines of a fabric as its trunk sees them, and whether that trunk lives. */
#include "segment/slot/machine.h"

#include "base/atomics.h"
#include "segment/slot/slot.h"

#include <errno.h>

bool nupa_trunk_alive(const struct nupa_fabric *fabric)
{
	const uint32_t pid = nupa_fabric_trunk_pid(fabric);
	const struct nupa_trunk_area *area = &fabric->sb->trunk;
	const uint32_t theirs = nupa_load_relaxed(&area->pid_ns);

	if (!pid)
		return false;
	if (theirs && nupa_pid_namespace() && theirs != nupa_pid_namespace())
		return true;
	return nupa_process_alive(pid, nupa_load_relaxed(&area->start_time));
}

uint32_t nupa_fabric_trunk_pid(const struct nupa_fabric *fabric)
{
	return nupa_fabric_has_trunk(fabric) ? nupa_load_acquire(&fabric->sb->trunk.pid) : 0;
}

int nupa_fabric_machine(const struct nupa_fabric *fabric, uint32_t machine,
			struct nupa_machine_info *info)
{
	const struct nupa_machine *seen = &fabric->sb->trunk.seen[machine % NUPA_MACHINES_MAX];

	if (machine >= nupa_fabric_n_machines(fabric))
		return -EINVAL;
	*info = (struct nupa_machine_info){
		.state = nupa_load_relaxed(&seen->state) % NUPA_MACHINE_STATES,
		.own = machine == fabric->geometry.trunk.machine,
		.losses = nupa_load_relaxed(&seen->losses),
		.rtt_ns = nupa_load_relaxed(&seen->rtt_ns),
		.sent_bytes = nupa_load_relaxed(&seen->sent_bytes),
		.sent_messages = nupa_load_relaxed(&seen->sent_messages),
		.received_bytes = nupa_load_relaxed(&seen->received_bytes),
		.received_messages = nupa_load_relaxed(&seen->received_messages),
		.refused = nupa_load_relaxed(&seen->refused),
		.since_ns = nupa_load_relaxed(&seen->since_ns),
	};
	nupa_machine_slots(fabric, machine, &info->first_slot, &info->end_slot);
	/* What a trunk said that is gone does not hold. */
	if (!nupa_trunk_alive(fabric))
		info->state = info->state == NUPA_MACHINE_UP ? NUPA_MACHINE_DOWN : info->state;
	else if (info->own)
		info->state = NUPA_MACHINE_UP;
	return 0;
}
