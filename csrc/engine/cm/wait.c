/* SPDX-License-Identifier: BSD-3-Clause
 * Identifiers that wait: for an answer, after an MRA, in timewait. */
#include "engine/cm/internal.h"
#include "segment/wire.h"

#define RESPONSE_NS (UINT64_C(4096) << CM_RESPONSE_TIMEOUT)
/* As our MRAs say.  Also how long a peer may repeat a request: 16 times the above. */
#define SERVICE_NS (UINT64_C(4096) << CM_SERVICE_TIMEOUT)
_Static_assert(SERVICE_NS >= (CM_RETRIES + 1) * RESPONSE_NS, "a remnant outlives repetitions");
/* As cm.c waits after a disconnection, for a packet life time of 16: 4.096 us * 2^17. */
#define TIMEWAIT_NS (UINT64_C(4096) << 17)
#define EARLY_TRIES 4u

void cm_stop_waiting(struct nupa_cm_id *id)
{
	nupa_list_del(&id->wait);
	if (id->unsent)
		id->engine->cm->unsent--;
	id->unsent = false;
}

void cm_timer_at(struct nupa_engine *engine, uint64_t at_ns)
{
	const uint64_t next_ns = nupa_load_relaxed(&engine->cm_timer_ns);

	if (!next_ns || at_ns < next_ns)
		nupa_store_release(&engine->cm_timer_ns, at_ns);
}

/* Behind those whose deadlines are no later: most wait equally long, so that is the end. */
static void insert(struct nupa_list *list, struct nupa_cm_id *id)
{
	struct nupa_list *at = list->prev;

	while (at != list &&
	       container_of(at, struct nupa_cm_id, wait)->deadline_ns > id->deadline_ns)
		at = at->prev;
	nupa_list_add(at->next, &id->wait);
}

/* The port thread may sleep until a later time than the new one. */
static void wait_on(struct nupa_cm_id *id, struct nupa_list *list, uint64_t ns)
{
	nupa_list_del(&id->wait);
	id->deadline_ns = id->engine->now_ns() + ns;
	insert(list, id);
	cm_timer_at(id->engine, id->deadline_ns);
	if (list->next == &id->wait)
		nupa_port_wake(id->engine);
}

/* Over a wire the first repetitions come early: a message that is lost there costs 0.3 s and not
 * 4.3 s.  One that comes twice is answered again or acknowledged (MRA), which is as well. */
static uint64_t response_ns(struct nupa_cm_id *id)
{
	const uint32_t early = id->sent.early;

	if (!early)
		return RESPONSE_NS;
	id->sent.early--;
	return RESPONSE_NS >> early;
}

void cm_wait(struct nupa_cm_id *id, enum cm_state state)
{
	cm_enter(id, state);
	id->sent.extended = false;
	id->sent.early = nupa_wire_of_host(id->engine->fabric, id->dst_host) >= 0 ? EARLY_TRIES : 0;
	id->sent.tries = CM_RETRIES;
	wait_on(id, &id->engine->cm->waiting, response_ns(id));
}

void cm_wait_again(struct nupa_cm_id *id)
{
	wait_on(id, &id->engine->cm->waiting, response_ns(id));
}

void cm_extend(struct nupa_cm_id *id, uint8_t service_timeout)
{
	const uint64_t ns = UINT64_C(4096) << service_timeout;

	/* Once for each repetition: MRAs do not keep an id for ever.  Nor do they hurry it. */
	if (id->sent.extended || id->engine->now_ns() + ns <= id->deadline_ns)
		return;
	id->sent.extended = true;
	wait_on(id, &id->engine->cm->extended, ns);
}

void cm_linger(struct nupa_cm_id *remnant)
{
	cm_enter(remnant, CM_CLOSED);
	wait_on(remnant, &remnant->engine->cm->extended, SERVICE_NS);
}

void cm_timewait(struct nupa_cm_id *id)
{
	cm_enter(id, CM_TIMEWAIT);
	wait_on(id, &id->engine->cm->timewait, TIMEWAIT_NS);
}
