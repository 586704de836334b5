/* SPDX-License-Identifier: BSD-3-Clause
 * The way of a host's frames into the fabric, for the pump and for a kernel's interface. */
#ifndef NUPA_FORWARD_H
#define NUPA_FORWARD_H

#include "netdev/frame.h"
#include "engine/net/net.h"

/* Sends a valid frame to the host that it is for, or to all; or drops and counts it.  False: it is
 * kept until nupa_net_retry sends it. */
bool nupa_forward(struct nupa_net *net, const struct nupa_fabric *fabric, const uint8_t *frame,
		  uint32_t bytes);

#endif
