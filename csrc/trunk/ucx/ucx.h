/* SPDX-License-Identifier: BSD-3-Clause
 * UCX as the carrier of a trunk. */
#ifndef NUPA_TRUNK_UCX_H
#define NUPA_TRUNK_UCX_H

#include "trunk/carrier.h"
#include "trunk/trunk.h"

/* Loads UCX and listens: 0 or a negative errno, and why. */
int nupa_ucx_open(uint32_t machine, const struct nupa_trunk_config *config,
		  struct nupa_carrier **out, char *why, size_t why_bytes);

#endif
