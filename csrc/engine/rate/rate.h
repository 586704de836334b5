/* SPDX-License-Identifier: BSD-3-Clause
 * An attachment's view of the rates (segment/control/rate.h): which ones a flow has to keep, and
 * when it may go on. */
#ifndef NUPA_ENGINE_RATE_H
#define NUPA_ENGINE_RATE_H

#include "engine/core/engine.h"
#include "segment/control/rate.h"

/* A rate as it was found; its entry may be anything by now (I5 of layout.h). */
struct nupa_rate_view {
	uint32_t scope; /* 0: none here */
	uint32_t tenant, host, pkey;
	uint64_t bytes_per_s;
	double price;
	struct nupa_rate_entry *entry;
};

struct nupa_rates {
	uint32_t looks; /* grows with each look at the table: what was found before is void */
	struct nupa_rate_view views[NUPA_RATES_MAX]; /* by place in the table */
};

/* The rates of one flow, and what it has booked there and not yet sent. */
struct nupa_pace {
	uint32_t n; /* 0: no rate holds for it */
	uint32_t piece_bytes;
	struct nupa_rate_view *by[NUPA_RATE_SCOPES - 1];
	uint64_t start_ns; /* when the booked bytes may go */
	uint64_t booked_bytes;
};

/* Takes over the table as it is now; engine->rates is NULL as long as there never was a rate.
 * False: no memory, and it is to be asked again. */
bool nupa_rate_follow(struct nupa_engine *engine);
/* Tells the setter of rates that this attachment goes by the table. */
void nupa_rate_say_seen(struct nupa_engine *engine);
void nupa_rate_free(struct nupa_engine *engine);

/* The rates for what this host sends by this P_Key. */
void nupa_pace_find(const struct nupa_engine *engine, uint32_t host, uint16_t pkey,
		    struct nupa_pace *pace);
/* Books so many bytes and a header, unless they are booked.  Returns 0 where they may go now, else
 * when, in ns; the booking stands until then. */
uint64_t nupa_pace_due_ns(struct nupa_pace *pace, uint64_t bytes, uint64_t now_ns);
/* They did not go after all: they are booked still. */
void nupa_pace_keep(struct nupa_pace *pace, uint64_t bytes);

#endif
