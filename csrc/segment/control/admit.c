/* SPDX-License-Identifier: BSD-3-Clause
 * States of hosts: a process attaches to one that is ready. */
#include "segment/control/admit.h"

#include "base/atomics.h"
#include "base/explain.h"
#include "segment/control/event.h"
#include "segment/slot/slot.h"

#include <errno.h>

enum nupa_host_state nupa_host_state_of(const struct nupa_fabric *fabric, uint32_t host)
{
	const uint32_t state = nupa_load_seq(&fabric->controls[host].state);

	return state < NUPA_HOST_STATES ? (enum nupa_host_state)state : NUPA_HOST_FAILED;
}

bool nupa_host_keeps(const struct nupa_fabric *fabric, uint32_t host)
{
	const enum nupa_host_state state = nupa_host_state_of(fabric, host);

	return state == NUPA_HOST_READY || state == NUPA_HOST_DRAINING;
}

int nupa_host_admits(const struct nupa_fabric *fabric, uint32_t host, char *why, size_t why_bytes)
{
	static const char *const says[NUPA_HOST_STATES] = {
		[NUPA_HOST_ABSENT] = "is absent: `nupa host add %s` lets it join",
		[NUPA_HOST_ONBOARDING] = "is being checked: attach once `nupa host ls` says that "
					 "%s is ready",
		[NUPA_HOST_DRAINING] = "is draining and takes no new process: `nupa host add %s` "
				       "makes it ready again",
		[NUPA_HOST_FAILED] = "was not admitted: `nupa events` says why, and `nupa host "
				     "add %s` tries again",
	};
	const enum nupa_host_state state = nupa_host_state_of(fabric, host);
	const char *name = fabric->hosts[host].name;
	char remedy[192];

	if (state == NUPA_HOST_READY)
		return 0;
	nupa_explain(0, remedy, sizeof(remedy), says[state], name);
	return nupa_explain(-EHOSTDOWN, why, why_bytes, "host %s of fabric %s %s", name,
			    nupa_fabric_name(fabric), remedy);
}

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
