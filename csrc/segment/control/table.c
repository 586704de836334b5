/* SPDX-License-Identifier: BSD-3-Clause
 * The control table: found, its rows read and written whole. */
#include "segment/control/table.h"

#include "base/atomics.h"
#include "base/explain.h"
#include "segment/layout/geometry.h"
#include "segment/slot/slot.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <string.h>

/* A writer needs less than a microsecond, unless it lost its processor: then it may have ours. */
#define LOOKS 1000
#define LOOKS_OF_A_TURN 100
#define WORDS_MAX 16

int nupa_control(struct nupa_fabric *fabric, bool make, struct nupa_control *t)
{
	const struct nupa_control_map map = nupa_control_map(&fabric->geometry);
	uint8_t *base;

	if (nupa_fabric_incoherent(fabric))
		return -EOPNOTSUPP;
	base = nupa_fabric_control(fabric, make);
	if (!base)
		return -errno;
	*t = (struct nupa_control){
		.header = (struct nupa_control_header *)(void *)base,
		.tenants = (struct nupa_tenant_row *)(void *)(base + map.tenants_off),
		.partitions = (struct nupa_partition_row *)(void *)(base + map.partitions_off),
		.members = (struct nupa_member_row *)(void *)(base + map.members_off),
		.events = (struct nupa_event_row *)(void *)(base + map.events_off),
		.n_tenants = map.tenants,
		.n_partitions = map.partitions,
		.n_members = map.members,
		.n_events = map.events,
	};
	t->members_used = nupa_load_acquire(&t->header->members);
	if (t->members_used > t->n_members)
		t->members_used = t->n_members;
	return 0;
}

int nupa_control_change(struct nupa_fabric *fabric, const char *what, struct nupa_control *t,
			char *why, size_t why_bytes)
{
	int rc = nupa_fabric_may_command(fabric, what, why, why_bytes);

	if (rc)
		return rc;
	rc = nupa_control(fabric, true, t);
	return rc ? nupa_explain(rc, why, why_bytes, "no memory for the %s of fabric %s: %s", what,
				 nupa_fabric_name(fabric), strerror(-rc))
		  : 0;
}

void nupa_row_store(uint64_t *stamp, void *body, const void *from, size_t bytes)
{
	/* Odd already: the writer before died. */
	const uint64_t changing = nupa_load_relaxed(stamp) | 1;
	uint64_t words[WORDS_MAX];

	memcpy(words, from, bytes);
	(void)nupa_exchange_seq(stamp, changing);
	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		nupa_store_relaxed((uint64_t *)body + i, words[i]);
	nupa_store_release(stamp, changing + 1);
}

bool nupa_row_load(const uint64_t *stamp, const void *body, void *to, size_t bytes)
{
	uint64_t words[WORDS_MAX] = { 0 };
	uint32_t first;

	for (int i = 0; i < LOOKS; i++) {
		const uint64_t before = nupa_load_acquire(stamp);

		if (!(before & 1)) {
			for (size_t at = 0; at < bytes / sizeof(*words); at++)
				words[at] = nupa_load_acquire((const uint64_t *)body + at);
			if (nupa_load_relaxed(stamp) == before) {
				memcpy(&first, words, sizeof(first));
				memcpy(to, words, bytes);
				return first != 0;
			}
		}
		if (i % LOOKS_OF_A_TURN == LOOKS_OF_A_TURN - 1)
			sched_yield();
		else
			nupa_cpu_pause();
	}
	return false;
}

bool nupa_control_name_ok(const char name[NUPA_NAME_BYTES])
{
	if (!isalnum((unsigned char)name[0]) && name[0] != '_')
		return false;
	for (size_t i = 1; i < NUPA_NAME_BYTES; i++) {
		if (!name[i])
			return true;
		if (!isalnum((unsigned char)name[i]) && !strchr("_.-", name[i]))
			return false;
	}
	return false;
}

int nupa_control_check_name(const char *what, const char name[NUPA_NAME_BYTES], char *why,
			    size_t why_bytes)
{
	if (nupa_control_name_ok(name))
		return 0;
	return nupa_explain(-EINVAL, why, why_bytes,
			    "\"%.*s\" is no name of a %s: use 1 to %u letters, digits, '_', '.' "
			    "and '-', the first one a letter, a digit or '_'",
			    (int)NUPA_NAME_BYTES, name, what, NUPA_NAME_BYTES - 1);
}
