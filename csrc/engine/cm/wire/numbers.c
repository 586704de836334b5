/* SPDX-License-Identifier: BSD-3-Clause
 * Communication ids in datagrams.  The low bits are the slot, by which a wire's keeper finds the
 * process.  The others are random: a host that has not seen an id cannot name it. */
#include "engine/cm/wire/steer.h"
#include "engine/cm/wire/wire.h"

#include <sys/random.h>

#define DRAWS 64u

static struct nupa_list *bucket_of(const struct nupa_cm *cm, uint32_t number)
{
	return (struct nupa_list *)&cm->numbers[(number >> 8) % CM_REMOTES];
}

struct nupa_cm_id *cm_number_find(const struct nupa_cm *cm, uint32_t number)
{
	const struct nupa_list *bucket = bucket_of(cm, number);

	for (struct nupa_list *at = bucket->next; number && at != bucket; at = at->next) {
		struct nupa_cm_id *id = container_of(at, struct nupa_cm_id, by_number);

		if (id->far.number == number)
			return id;
	}
	return NULL;
}

void cm_number_keep(struct nupa_cm_id *id)
{
	if (id->far.number)
		nupa_list_add(bucket_of(id->engine->cm, id->far.number), &id->by_number);
}

uint32_t cm_number(struct nupa_cm_id *id)
{
	const uint32_t slot = id->engine->slot_index;

	for (uint32_t i = 0; !id->far.number && i < DRAWS; i++) {
		uint32_t number;

		if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number))
			break;
		number = number - NUPA_CM_NUMBER_SLOT(number) + slot;
		if (cm_number_find(id->engine->cm, number))
			continue;
		id->far.number = number;
		cm_number_keep(id);
	}
	return id->far.number;
}
