/* SPDX-License-Identifier: BSD-3-Clause
 * A watch: registered in the superblock, so that attachments record, and read by its owner. */
#include "capture/watch.h"

#include "base/atomics.h"
#include "base/explain.h"
#include "capture/rings.h"
#include "segment/slot/slot.h"
#include "region/slot_life.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define SNAP_MAX_BYTES 0x0fffffffu /* of NUPA_TRACE_WORD */

static uint64_t clock_of(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* --- registration: all under the control lock ---------------------------------------- */

/* The levels that all attachments record from now on; notifies them. */
static void announce(struct nupa_fabric *fabric)
{
	struct nupa_superblock *sb = fabric->sb;
	uint32_t levels = 0, snap_bytes = 0;

	for (uint32_t i = 0; i < NUPA_WATCHERS_MAX; i++) {
		struct nupa_watcher *watcher = &sb->watchers[i];

		if (!nupa_watcher_lives(watcher)) {
			nupa_store_release(&watcher->pid, 0);
			continue;
		}
		levels |= watcher->levels & 15;
		if (watcher->snap_bytes > snap_bytes)
			snap_bytes = watcher->snap_bytes;
	}
	if (snap_bytes > SNAP_MAX_BYTES)
		snap_bytes = SNAP_MAX_BYTES;
	(void)nupa_exchange_seq(&sb->trace, levels ? NUPA_TRACE_WORD(levels, snap_bytes) : 0);
	nupa_fabric_announce(fabric);
}

static bool records_what_it_should(const struct nupa_fabric *fabric, const struct nupa_slot *slot)
{
	return nupa_load_acquire(&slot->trace_seen) == nupa_load_relaxed(&fabric->sb->trace);
}

/* Lines of the fast channel are recorded as messages of the transport. */
static uint32_t recorded_of(uint32_t levels)
{
	return (levels & 15) | (levels & NUPA_WATCH_CACHE ? NUPA_TRACE_TRANSPORT : 0);
}

static int enter(struct nupa_watch *watch)
{
	struct nupa_superblock *sb = watch->fabric->sb;
	const uint32_t pid = (uint32_t)getpid();

	for (int i = 0; i < (int)NUPA_WATCHERS_MAX; i++) {
		struct nupa_watcher *watcher = &sb->watchers[i];

		if (nupa_watcher_lives(watcher))
			continue;
		nupa_store_release(&watcher->pid, 0);
		watcher->levels = recorded_of(watch->levels);
		watcher->snap_bytes = watch->snap_bytes;
		watcher->pid_ns = nupa_pid_namespace();
		watcher->start_time = nupa_process_start_time(pid);
		nupa_store_release(&watcher->pid, pid);
		watch->place = i;
		return 0;
	}
	return -EUSERS;
}

/* --- interface ----------------------------------------------------------------------- */

static int check_ports(struct nupa_watch *watch, const uint16_t *ports, uint32_t n_ports, char *why,
		       size_t why_bytes)
{
	for (uint32_t i = 0; i < n_ports; i++) {
		if (ports[i] >= watch->fabric->geometry.n_ports)
			return nupa_explain(
			    -EINVAL, why, why_bytes,
			    "cannot watch port %u: the fabric has %u ports, counted from 0",
			    ports[i], watch->fabric->geometry.n_ports);
		watch->watched[ports[i]] = true;
	}
	watch->n_ports = n_ports;
	return 0;
}

static void watch_free(struct nupa_watch *watch)
{
	nupa_rings_close(watch);
	nupa_requesters_close(watch);
	nupa_caches_close(watch);
	nupa_fabric_put(watch->fabric);
	free(watch);
}

static struct nupa_watch *watch_new(struct nupa_fabric *fabric, uint32_t levels,
				    uint32_t snap_bytes)
{
	struct nupa_watch *watch = calloc(1, sizeof(*watch));

	if (!watch)
		return NULL;
	watch->fabric = nupa_fabric_get(fabric);
	watch->levels = levels;
	watch->snap_bytes = snap_bytes ? snap_bytes : UINT32_MAX;
	watch->place = -1;
	watch->epoch_ns = clock_of(CLOCK_REALTIME) - clock_of(CLOCK_MONOTONIC);
	if (nupa_requesters_open(watch) || nupa_caches_open(watch) || nupa_rings_open(watch)) {
		watch_free(watch);
		return NULL;
	}
	return watch;
}

struct nupa_watch *nupa_watch_open(struct nupa_fabric *fabric, uint32_t levels, uint32_t snap_bytes,
				   const uint16_t *ports, uint32_t n_ports, char *why,
				   size_t why_bytes)
{
	struct nupa_watch *watch;
	int error = 0;

	if (!levels || levels > 31) {
		errno = -nupa_explain(-EINVAL, why, why_bytes,
				      "cannot watch levels %#x: there are 1 (tlp), 2 (queue), "
				      "4 (transport), 8 (net), 16 (cache), or-ed",
				      levels);
		return NULL;
	}
	error = nupa_fabric_may_command(fabric, "watches", why, why_bytes);
	if (error) {
		errno = -error;
		return NULL;
	}
	watch = watch_new(fabric, levels, snap_bytes);
	if (!watch) {
		errno = -nupa_explain(-ENOMEM, why, why_bytes, "no memory for a watch");
		return NULL;
	}
	error = check_ports(watch, ports, n_ports, why, why_bytes);
	if (!error && enter(watch))
		error = nupa_explain(-EUSERS, why, why_bytes,
				     "%u processes watch this fabric, which is the limit: stop one "
				     "(nupa capture) and try again",
				     NUPA_WATCHERS_MAX);
	if (error) {
		watch_free(watch);
		errno = -error;
		return NULL;
	}
	announce(fabric);
	nupa_fabric_await_notice(fabric, records_what_it_should);
	return watch;
}

void nupa_watch_stop(struct nupa_watch *watch)
{
	if (watch->place < 0)
		return;
	watch->stopped_ns = clock_of(CLOCK_MONOTONIC);
	nupa_store_release(&watch->fabric->sb->watchers[watch->place].pid, 0);
	watch->place = -1;
	announce(watch->fabric);
}

void nupa_watch_close(struct nupa_watch *watch)
{
	nupa_watch_stop(watch);
	/* Records left by attachments that went meanwhile. */
	if (!nupa_load_relaxed(&watch->fabric->sb->trace))
		nupa_fabric_reap(watch->fabric);
	watch_free(watch);
}

size_t nupa_watch_read(struct nupa_watch *watch, void *buffer, size_t bytes, uint32_t *packets)
{
	struct nupa_sink sink = { .at = buffer, .end = (uint8_t *)buffer + bytes };
	bool gathered = false;

	for (;;) {
		const struct nupa_trace_record *record;

		if (!nupa_expand_go_on(watch, &sink))
			break;
		if (watch->record_bytes)
			nupa_rings_pass(watch);
		record = nupa_rings_next(watch);
		if (record) {
			nupa_expand_begin(watch, record, watch->current->slot);
			continue;
		}
		if (gathered)
			break;
		nupa_rings_gather(watch);
		gathered = true;
	}
	watch->counts.packets += sink.packets;
	*packets = sink.packets;
	return (size_t)(sink.at - (uint8_t *)buffer);
}

void nupa_watch_counts(const struct nupa_watch *watch, struct nupa_watch_counts *counts)
{
	*counts = watch->counts;
}
