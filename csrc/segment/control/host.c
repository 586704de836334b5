/* SPDX-License-Identifier: BSD-3-Clause
 * States of hosts. */
#include "base/atomics.h"
#include "base/explain.h"
#include "segment/control/control_internal.h"
#include "segment/control/event.h"
#include "segment/slot/slot.h"

#include <errno.h>

const char *nupa_host_state_name(uint32_t state)
{
	static const char *const names[NUPA_HOST_STATES] = { "ready", "absent", "onboarding",
							     "draining", "failed" };

	return state < NUPA_HOST_STATES ? names[state] : NULL;
}

int nupa_host_state_set(struct nupa_fabric *fabric, uint32_t host, uint32_t state, char *why,
			size_t why_bytes)
{
	const int rc = nupa_fabric_may_command(fabric, "states of hosts", why, why_bytes);

	if (rc)
		return rc;
	if (host >= fabric->geometry.n_hosts)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "there is no host %u: fabric %s has %u", host,
				    nupa_fabric_name(fabric), fabric->geometry.n_hosts);
	if (!nupa_host_state_name(state))
		return nupa_explain(-EINVAL, why, why_bytes, "no state of a host is %u", state);
	/* Stored before claims are looked at: see enter_fabric in attach.c. */
	if (nupa_exchange_seq(&fabric->controls[host].state, state) == state)
		return 0;
	nupa_fabric_announce(fabric);
	nupa_event_post(fabric,
			state == NUPA_HOST_FAILED ? NUPA_SEVERITY_CRITICAL : NUPA_SEVERITY_OK,
			"host.state", fabric->hosts[host].name, "host %s is %s",
			fabric->hosts[host].name, nupa_host_state_name(state));
	return 0;
}
