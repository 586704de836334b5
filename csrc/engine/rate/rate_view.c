/* SPDX-License-Identifier: BSD-3-Clause
 * An attachment's view of the table of rates, and bookings for its flows. */
#include "engine/rate/rate.h"

#include <stdlib.h>

static bool any_rate(const struct nupa_fabric *fabric)
{
	for (uint32_t i = 0; i < NUPA_RATES_MAX; i++)
		if (nupa_load_acquire(&fabric->rates[i].scope))
			return true;
	return false;
}

/* I5 of layout.h: each field once, and checked. */
static void read_entry(struct nupa_rate_entry *entry, struct nupa_rate_view *view)
{
	*view = (struct nupa_rate_view){
		.scope = nupa_load_acquire(&entry->scope),
		.tenant = nupa_load_relaxed(&entry->tenant),
		.host = nupa_load_relaxed(&entry->host),
		.pkey = nupa_load_relaxed(&entry->pkey),
		.bytes_per_s = nupa_load_relaxed(&entry->bytes_per_s),
		.entry = entry,
	};
	if (view->scope >= NUPA_RATE_SCOPES || !view->bytes_per_s)
		view->scope = 0;
	if (view->scope)
		view->price = nupa_rate_price(view->bytes_per_s);
}

bool nupa_rate_follow(struct nupa_engine *engine)
{
	struct nupa_fabric *fabric = engine->fabric;

	engine->rate_epoch_seen = nupa_load_acquire(&fabric->sb->rate_epoch);
	if (!engine->rates && !any_rate(fabric))
		return true;
	if (!engine->rates)
		engine->rates = calloc(1, sizeof(*engine->rates));
	if (!engine->rates)
		return false;
	engine->rates->looks++;
	for (uint32_t i = 0; i < NUPA_RATES_MAX; i++)
		read_entry(&fabric->rates[i], &engine->rates->views[i]);
	return true;
}

void nupa_rate_say_seen(struct nupa_engine *engine)
{
	if (nupa_load_relaxed(&engine->slot->rate_seen) != engine->rate_epoch_seen)
		nupa_store_release(&engine->slot->rate_seen, engine->rate_epoch_seen);
}

void nupa_rate_free(struct nupa_engine *engine)
{
	free(engine->rates);
	engine->rates = NULL;
}

static bool holds(const struct nupa_rate_view *view, uint32_t host, uint32_t tenant, uint32_t pkey)
{
	switch (view->scope) {
	case NUPA_RATE_TENANT:
		return tenant && view->tenant == tenant;
	case NUPA_RATE_PARTITION:
		return pkey && view->pkey == pkey;
	case NUPA_RATE_MEMBER:
		return pkey && view->pkey == pkey && view->host == host;
	default:
		return false;
	}
}

void nupa_pace_find(const struct nupa_engine *engine, uint32_t host, uint16_t pkey,
		    struct nupa_pace *pace)
{
	const struct nupa_fabric *fabric = engine->fabric;
	uint32_t tenant;

	*pace = (struct nupa_pace){ .piece_bytes = NUPA_RATE_PIECE_MAX_BYTES };
	if (!engine->rates || host >= fabric->geometry.n_hosts)
		return;
	tenant = nupa_load_relaxed(&fabric->controls[host].tenant);
	for (uint32_t i = 0; i < NUPA_RATES_MAX && pace->n < NUPA_RATE_SCOPES - 1; i++) {
		struct nupa_rate_view *view = &engine->rates->views[i];
		uint32_t piece_bytes;

		if (!holds(view, host, tenant, pkey & 0x7fffu))
			continue;
		piece_bytes = nupa_rate_piece_bytes(view->bytes_per_s);
		if (piece_bytes < pace->piece_bytes)
			pace->piece_bytes = piece_bytes;
		pace->by[pace->n++] = view;
	}
}

static void book(struct nupa_pace *pace, uint64_t bytes, uint64_t now_ns)
{
	uint64_t start = 0;

	for (uint32_t i = 0; i < pace->n; i++) {
		const struct nupa_rate_view *view = pace->by[i];
		uint64_t at = nupa_rate_book(view->entry, view->price, bytes, now_ns);

		start = at > start ? at : start;
	}
	pace->start_ns = start / NUPA_RATE_UNITS_PER_NS;
	pace->booked_bytes += bytes;
}

uint64_t nupa_pace_due_ns(struct nupa_pace *pace, uint64_t bytes, uint64_t now_ns)
{
	bytes += NUPA_RATE_HEADER_BYTES;
	if (!pace->n)
		return 0;
	if (pace->booked_bytes < bytes)
		book(pace, bytes - pace->booked_bytes, now_ns);
	if (pace->start_ns > now_ns + NUPA_RATE_AHEAD_NS)
		return pace->start_ns;
	pace->booked_bytes = 0;
	return 0;
}

void nupa_pace_keep(struct nupa_pace *pace, uint64_t bytes)
{
	if (pace->n)
		pace->booked_bytes = bytes + NUPA_RATE_HEADER_BYTES;
}
