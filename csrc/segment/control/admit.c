/* SPDX-License-Identifier: BSD-3-Clause
 * States of hosts: a process attaches to one that is ready.  States of newcomers, which are
 * accelerators and devices (control_layout.h, T5). */
#include "segment/control/admit.h"

#include "base/atomics.h"
#include "base/explain.h"
#include "segment/control/control_internal.h"
#include "segment/control/event.h"
#include "segment/slot/slot.h"
#include "segment/trunk.h"
#include "segment/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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

	if (nupa_host_trunked(fabric, host))
		return nupa_explain(-EREMOTE, why, why_bytes,
				    "host %s of fabric %s is on another machine: run this there",
				    name, nupa_fabric_name(fabric));
	if (nupa_wire_of_host(fabric, host) >= 0)
		return nupa_explain(-EHOSTDOWN, why, why_bytes,
				    "host %s of fabric %s is a wire, whose programs run on the "
				    "machine at its other end: choose another host",
				    name, nupa_fabric_name(fabric));
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

/* --- newcomers ---------------------------------------------------------------------------- */

static int check_newcomer(const struct nupa_member *wish, char *why, size_t why_bytes)
{
	if (!nupa_host_state_name(wish->state))
		return nupa_explain(-EINVAL, why, why_bytes, "no state is %u", wish->state);
	if (wish->kind == NUPA_MEMBER_ACCELERATOR)
		return wish->index < NUPA_ACCELERATORS_MAX
			   ? 0
			   : nupa_explain(-EINVAL, why, why_bytes,
					  "there is no accelerator %u: a pod has 0 to %u",
					  wish->index, NUPA_ACCELERATORS_MAX - 1);
	if (wish->kind == NUPA_MEMBER_DEVICE && wish->name[0] &&
	    memchr(wish->name, 0, sizeof(wish->name)))
		return 0;
	return nupa_explain(-EINVAL, why, why_bytes, "a device is named by 1 to %u bytes",
			    NUPA_NAME_BYTES - 1);
}

int nupa_newcomer_set(struct nupa_fabric *fabric, const struct nupa_member *wish, char *why,
		      size_t why_bytes)
{
	struct nupa_member body = { .pkey = NUPA_PKEY_NEWCOMER,
				    .kind = wish->kind,
				    .state = wish->state,
				    .index = wish->index };
	const bool failed = wish->state == NUPA_HOST_FAILED;
	char subject[NUPA_MEMBER_NAME_BYTES], name[NUPA_MEMBER_NAME_BYTES];
	const bool number = wish->kind == NUPA_MEMBER_ACCELERATOR;
	struct nupa_member before;
	struct nupa_control t;
	uint32_t row;
	int rc =
	    nupa_control_change(fabric, "states of accelerators and devices", &t, why, why_bytes);

	if (!rc)
		rc = check_newcomer(wish, why, why_bytes);
	if (rc)
		return rc;
	if (number)
		snprintf(subject, sizeof(subject), "accelerator:%u", body.index);
	else {
		body.index = 0;
		memcpy(body.name, wish->name, sizeof(body.name));
		snprintf(subject, sizeof(subject), "device:%.31s", body.name);
	}
	row = nupa_member_row_for(fabric, &t, &body);
	if (row == UINT32_MAX)
		return nupa_explain(-ENOSPC, why, why_bytes,
				    "fabric %s has %u members of partitions, accelerators and "
				    "devices, as many as it can",
				    nupa_fabric_name(fabric), t.n_members);
	if (nupa_member_row(fabric, &t, row, &before) && before.state == body.state)
		return 0;
	nupa_member_row_store(&t, row, &body);
	nupa_event_post(fabric, failed ? NUPA_SEVERITY_CRITICAL : NUPA_SEVERITY_OK,
			number ? "accelerator.state" : "device.state", subject, "%s is %s",
			nupa_member_name(&body, name, sizeof(name)),
			nupa_host_state_name(body.state));
	return 0;
}

uint32_t nupa_newcomer_list(struct nupa_fabric *fabric, struct nupa_member *out, uint32_t max)
{
	struct nupa_member member;
	struct nupa_control t;
	uint32_t n = 0;

	if (nupa_control(fabric, false, &t))
		return 0;
	for (uint32_t i = 0; i < t.members_used; i++)
		if (nupa_member_row(fabric, &t, i, &member) && member.pkey == NUPA_PKEY_NEWCOMER) {
			if (n < max)
				out[n] = member;
			n++;
		}
	return n;
}
