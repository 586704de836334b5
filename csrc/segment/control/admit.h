/* SPDX-License-Identifier: BSD-3-Clause
 * States of hosts: whether a process may attach to one. */
#ifndef NUPA_ADMIT_H
#define NUPA_ADMIT_H

#include "segment/segment.h"

/* cffi: begin */
/* What the control plane says of a host; NUPA_HOST_FAILED for a state that is unknown here. */
enum nupa_host_state nupa_host_state_of(const struct nupa_fabric *fabric, uint32_t host);
/* 0: a new process may attach.  -EHOSTDOWN: the host is not ready; *why* names the command that
 * changes that. */
int nupa_host_admits(const struct nupa_fabric *fabric, uint32_t host, char *why, size_t why_bytes);
/* Sets it (enum nupa_host_state), and posts an event; the caller holds the control lock.  -EINVAL:
 * no such host or state; -EREMOTE, -EOPNOTSUPP: see nupa_fabric_may_command. */
int nupa_host_state_set(struct nupa_fabric *fabric, uint32_t host, uint32_t state, char *why,
			size_t why_bytes);
/* "ready", ...; NULL: no such state. */
const char *nupa_host_state_name(uint32_t state);
/* cffi: end */

/* Whether a process that is on a host already may open its device again: unless the host has left
 * the fabric. */
bool nupa_host_keeps(const struct nupa_fabric *fabric, uint32_t host);

#endif
