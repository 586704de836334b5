/* SPDX-License-Identifier: BSD-3-Clause
 * The rate of a port, in the terms of InfiniBand.  It is nominal: nothing enforces it. */
#ifndef NUPA_RATE_H
#define NUPA_RATE_H

#include "segment/layout/layout.h"

/* cffi: begin */
/* A CXL link has no speed of InfiniBand: the next lower one that exists stands for it. */
struct nupa_port_rate {
	uint32_t lanes;
	uint32_t mbps;        /* of all lanes */
	uint8_t width, speed; /* IBTA 14.2.5.6 PortInfo: LinkWidthActive, LinkSpeedActive */
	char name[6];         /* of the speed: "EDR" */
};
struct nupa_port_rate nupa_port_rate(const struct nupa_port *port);
/* cffi: end */

#endif
