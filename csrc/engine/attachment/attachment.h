/* SPDX-License-Identifier: BSD-3-Clause
 * Attachments of this process to hosts, and what keeps them going: the port, progress, deaths. */
#ifndef NUPA_ATTACHMENT_H
#define NUPA_ATTACHMENT_H

#include "engine/channel/attention.h"
#include "engine/transport/transport.h"

/* registry.c */
extern struct nupa_engine *nupa_engines; /* of this process; changes under the registry's lock */
extern uint32_t nupa_engines_readers;    /* threads that walk the list without it */
void nupa_registry_lock(void);
void nupa_registry_unlock(void);
void nupa_registry_init(void);

/* The device that the environment names (device_list.c). */
struct nupa_named_device {
	pthread_mutex_t mutex;
	struct nupa_fabric *fabric;
	struct ibv_device device;
	uint32_t host;
	enum nupa_mover mover;
};
extern struct nupa_named_device nupa_named_device;
void nupa_device_list_forget(void);

/* attach.c */
void nupa_context_free(struct nupa_context *context);
/* Of the hosts that are ready, the one with the fewest live attachments; else the first of all. */
uint32_t nupa_quietest_host(const struct nupa_fabric *fabric);

/* With the registry's lock: the attachment to a host, which is made if need be; nupa_open_host has
 * the arguments.  Gives it back: the last one leaves the fabric. */
struct nupa_engine *nupa_engine_get(struct nupa_fabric *fabric, int host, enum nupa_mover mover,
				    char *why, size_t why_bytes);
void nupa_engine_put(struct nupa_engine *engine);
/* An attachment of its own, in which no device is opened, and its end. */
struct nupa_engine *nupa_engine_attach(struct nupa_fabric *fabric, uint32_t host, char *why,
				       size_t why_bytes);
void nupa_engine_detach(struct nupa_engine *engine);

/* leave.c: sends what is owed, tells the partners, frees the slot. */
void nupa_engine_leave(struct nupa_engine *engine);

/* fork.c: from now on forks are noticed, and counted in nupa_forks. */
void nupa_fork_prepare(void);

/* life.c */
int nupa_life_open(struct nupa_engine *engine);   /* 0 or -errno */
void nupa_life_begin(struct nupa_engine *engine); /* in the thread that answers for the process */
void nupa_life_end(struct nupa_engine *engine);   /* in the same */
void nupa_life_await(const struct nupa_engine *engine); /* until it has begun */
bool nupa_life_watch(struct nupa_engine *engine, struct nupa_channel *channel);

/* port.c */
int nupa_port_start(struct nupa_engine *engine);
void nupa_port_stop(struct nupa_engine *engine);
void nupa_port_watch(struct nupa_engine *engine, struct nupa_channel *channel);
/* With the engine's lock: slots of the dead are freed, now or soon. */
void nupa_port_reap(struct nupa_engine *engine);

/* look.c: with the lock; SOFTWARE: sees what others have changed, if the last look is old. */
void nupa_engine_look(struct nupa_engine *engine, uint64_t now_ns);

/* Shows what others look at now and then: counters, the heartbeat. */
void nupa_engine_show(const struct nupa_engine *engine);

/* progress.c: runs the engine once; returns how many messages were handled. */
uint32_t nupa_engine_progress(struct nupa_engine *engine);
/* The same for a program that polls: it looks at rings that are attended (attention.h).  With many
 * of these, and if it spins, messages of those from which nothing came last may be left for one of
 * its next turns. */
uint32_t nupa_engine_turn(struct nupa_engine *engine);
#define NUPA_COLD_LOOKS 2u
/* drain.c: takes up to *budget* messages from one channel; how many. */
uint32_t nupa_engine_drain(struct nupa_engine *engine, struct nupa_channel *channel,
			   uint32_t budget);
/* Has one message handled; false: nonsense. */
bool nupa_engine_dispatch(struct nupa_engine *engine, struct nupa_channel *channel,
			  struct nupa_msg *msg, const uint8_t *payload);
/* The other attachments of this process, which one polling thread drives along. */
void nupa_engine_progress_siblings(struct nupa_engine *engine);
void nupa_engine_flush(struct nupa_engine *engine); /* acks that are due */
bool nupa_engine_owes(const struct nupa_engine *engine);
bool nupa_engine_rings_ready(const struct nupa_engine *engine);

static inline bool nupa_engine_lines_ready(const struct nupa_engine *engine, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (nupa_channel_ready(engine->open[i]))
			return true;
	return false;
}

/* Whether a turn leaves some peers out. */
static inline bool nupa_engine_looks_at_some(const struct nupa_engine *engine)
{
	return unlikely(engine->n_attended > NUPA_HOT_MAX + NUPA_COLD_LOOKS) &&
	       nupa_load_relaxed(&engine->spins);
}

/* Whether nupa_engine_progress would find nothing to do. */
bool nupa_engine_is_idle(const struct nupa_engine *engine);
uint64_t nupa_engine_next_timer_ns(const struct nupa_engine *engine);

/* death.c */
void nupa_channel_fail(struct nupa_engine *engine, struct nupa_channel *channel);
void nupa_channel_sweep(struct nupa_engine *engine);
/* Others declared us dead and gave our slot away: what is stored from now on stays here. */
void nupa_engine_fence(struct nupa_engine *engine);

#endif
