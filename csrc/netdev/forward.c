/* SPDX-License-Identifier: BSD-3-Clause
 * Forwarding by destination address (forward.h). */
#include "netdev/forward.h"

bool nupa_forward(struct nupa_net *net, const struct nupa_fabric *fabric, const uint8_t *frame,
		  uint32_t bytes)
{
	uint32_t host;

	switch (nupa_frame_route(fabric, frame + NUPA_VNET_BYTES, &host)) {
	case NUPA_FRAME_ONE:
		return nupa_net_send(net, host, bytes);
	case NUPA_FRAME_ALL:
		nupa_net_flood(net, bytes);
		return true;
	case NUPA_FRAME_UNKNOWN:
		nupa_count(&nupa_net_count(net)->tx_unknown, 1);
		return true;
	}
	return true;
}
