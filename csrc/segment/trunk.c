/* SPDX-License-Identifier: BSD-3-Clause
 * Machines of a fabric: their hosts and slots. */
#include "segment/trunk.h"

#include <errno.h>

uint32_t nupa_fabric_n_machines(const struct nupa_fabric *fabric)
{
	return nupa_fabric_has_trunk(fabric) ? fabric->geometry.trunk.machines : 0;
}

int nupa_fabric_host_machine(const struct nupa_fabric *fabric, uint32_t host)
{
	if (host >= fabric->geometry.n_hosts)
		return -EINVAL;
	return nupa_fabric_has_trunk(fabric) ? fabric->geometry.trunk.host_machine[host] : 0;
}

void nupa_machine_slots(const struct nupa_fabric *fabric, uint32_t machine, uint32_t *first,
			uint32_t *end)
{
	const struct nupa_trunk_area *area = &fabric->geometry.trunk;

	*first = area->first_slot[machine];
	*end =
	    machine + 1 < area->machines ? area->first_slot[machine + 1] : fabric->geometry.n_slots;
}

bool nupa_slot_trunked(const struct nupa_fabric *fabric, uint32_t slot)
{
	uint32_t first, end;

	if (!nupa_fabric_has_trunk(fabric))
		return false;
	nupa_machine_slots(fabric, fabric->geometry.trunk.machine, &first, &end);
	return slot < first || slot >= end;
}

bool nupa_host_trunked(const struct nupa_fabric *fabric, uint32_t host)
{
	return nupa_fabric_has_trunk(fabric) &&
	       fabric->geometry.trunk.host_machine[host] != fabric->geometry.trunk.machine;
}

uint32_t nupa_slot_machine(const struct nupa_fabric *fabric, uint32_t slot)
{
	const struct nupa_trunk_area *area = &fabric->geometry.trunk;
	uint32_t machine = area->machines - 1;

	while (machine && slot < area->first_slot[machine])
		machine--;
	return machine;
}

uint32_t nupa_port_machine(const struct nupa_fabric *fabric, uint32_t port)
{
	const struct nupa_port *entry = &fabric->ports[port];

	if (entry->is_switch && entry->peer < fabric->geometry.n_ports)
		entry = &fabric->ports[entry->peer];
	if (entry->is_switch || entry->node >= fabric->geometry.n_hosts)
		return 0;
	return fabric->geometry.trunk.host_machine[entry->node];
}
