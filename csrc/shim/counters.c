/* SPDX-License-Identifier: BSD-3-Clause
 * The counters of the host's port, as in `nupa show`.  They have the flows of every attachment,
 * past and present, that passed the port, those of groups, and messages dropped, repeated or
 * rejected. */
#include "shim/shim.h"

#include "base/atomics.h"
#include "mad/mad.h"
#include "segment/slot/counters.h"
#include "segment/wire.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The two are read one after the other, while they grow. */
static uint64_t without(uint64_t all, uint64_t some)
{
	return all > some ? all - some : 0;
}

/* Data in words of 4 bytes, IBTA 16.1.3.5. */
void nupa_shim_counter(const struct nupa_shim_view *view, uint32_t index, char *text, size_t bytes)
{
	struct nupa_fabric *fabric = view->fabric;
	const struct nupa_port *port = &fabric->ports[fabric->hosts[view->host].port];
	struct nupa_traffic sum;
	struct nupa_hw_counters hw = { 0 };

	(void)nupa_fabric_hw_counters(fabric, view->host, &hw);
	nupa_port_traffic(fabric, fabric->hosts[view->host].port, &sum);
	const uint64_t values[] = {
		[NUPA_SHIM_XMIT_DATA] = sum.xmit_bytes / 4,
		[NUPA_SHIM_XMIT_PACKETS] = sum.xmit_packets,
		[NUPA_SHIM_RCV_DATA] = sum.rcv_bytes / 4,
		[NUPA_SHIM_RCV_PACKETS] = sum.rcv_packets,
		[NUPA_SHIM_XMIT_WAIT] = sum.xmit_wait,
		[NUPA_SHIM_XMIT_DISCARDS] = sum.xmit_discards,
		[NUPA_SHIM_LINK_DOWNED] = nupa_load_relaxed(&port->link_downed),
		[NUPA_SHIM_UNICAST_XMIT] = without(sum.xmit_packets, hw.multicast_xmit_packets),
		[NUPA_SHIM_UNICAST_RCV] = without(sum.rcv_packets, hw.multicast_rcv_packets),
		[NUPA_SHIM_RETRIES] = hw.packet_seq_err + hw.local_ack_timeout_err,
	};
	snprintf(text, bytes, "%" PRIu64 "\n", values[index]);
}

void nupa_shim_hw_counter(const struct nupa_shim_view *view, uint32_t index, char *text,
			  size_t bytes)
{
	struct nupa_hw_counters counters;
	uint64_t value = 0;

	if (!nupa_fabric_hw_counters(view->fabric, view->host, &counters))
		memcpy(&value, (const uint8_t *)&counters + index, sizeof(value));
	snprintf(text, bytes, "%" PRIu64 "\n", value);
}

/* Of all wires of the fabric: an entry counts for all hosts together. */
void nupa_shim_wire_counter(const struct nupa_shim_view *view, uint32_t index, char *text,
			    size_t bytes)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < NUPA_WIRES_MAX; i++) {
		const struct nupa_wire_entry *entry = nupa_wire_at(view->fabric, i);

		if (entry)
			sum += nupa_load_relaxed(
			    (const uint64_t *)(const void *)((const uint8_t *)entry + index));
	}
	snprintf(text, bytes, "%" PRIu64 "\n", sum);
}
