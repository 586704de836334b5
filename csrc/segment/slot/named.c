/* SPDX-License-Identifier: BSD-3-Clause
 * Attached programs by name and pid, for messages. */
#include "segment/slot/slot.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define NAMED_MAX 4u

const char *nupa_slots_named(struct nupa_fabric *fabric, char *text, size_t bytes)
{
	uint32_t named = 0, more = 0;
	size_t at = 0;

	text[0] = '\0';
	for (uint32_t slot = 1; slot < fabric->geometry.n_slots; slot++) {
		const uint64_t claim = nupa_slot_fetch(fabric, slot);
		char comm[sizeof(fabric->slots[slot].comm) + 1] = "";

		if (NUPA_CLAIM_STATE(claim) == NUPA_SLOT_FREE)
			continue;
		if (named == NAMED_MAX) {
			more++;
			continue;
		}
		memcpy(comm, fabric->slots[slot].comm, sizeof(comm) - 1);
		for (char *c = comm; *c; c++) /* I5: it goes to a terminal */
			*c = isprint((unsigned char)*c) ? *c : '?';
		if (at < bytes)
			at += (size_t)snprintf(text + at, bytes - at, "%s%s (pid %u)",
					       named ? ", " : "", comm, NUPA_CLAIM_PID(claim));
		named++;
	}
	if (more && at < bytes)
		snprintf(text + at, bytes - at, " and %u more", more);
	return text;
}
