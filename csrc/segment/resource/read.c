/* SPDX-License-Identifier: BSD-3-Clause
 * Reads the tables of resources, of QPs and of MRs.  All of it may be nonsense (I5): indices and
 * limits are checked here, other fields are only shown.  Arenas are read with pread, as in
 * slot/counters.c. */
#include "segment/resource/resource.h"

#include "base/atomics.h"
#include "segment/layout/geometry.h"
#include "segment/slot/counters.h"
#include "segment/slot/slot.h"

#include <errno.h>
#include <string.h>

#define BATCH 64u

_Static_assert(sizeof(struct nupa_resource_row) == sizeof(struct nupa_mr_entry), "one batch");

/* A process whose resources are being read. */
struct process {
	struct nupa_fabric *fabric;
	struct nupa_arena_map map;
	uint32_t slot, host, pid;
	uint32_t rows, qps, mrs; /* limits of its tables */
	char comm[16];
};

static uint32_t least(uint32_t value, uint32_t limit)
{
	return value < limit ? value : limit;
}

static int read_arena(const struct process *process, uint64_t offset, void *to, size_t bytes)
{
	return nupa_fabric_read(
	    process->fabric, nupa_arena_offset(process->fabric, process->slot) + offset, to, bytes);
}

/* The process of a slot: 0; -ENOENT if there is none, or none of *host*. */
static int find_process(struct nupa_fabric *fabric, uint32_t slot, int32_t host,
			struct process *process, struct nupa_resource_header *header)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	const struct nupa_slot *entry = &fabric->slots[slot];
	const uint64_t claim = nupa_slot_fetch(fabric, slot);
	int error;

	if (NUPA_CLAIM_STATE(claim) != NUPA_SLOT_LIVE)
		return -ENOENT;
	*process = (struct process){
		.fabric = fabric,
		.map = nupa_arena_map(sb),
		.slot = slot,
		.host = nupa_load_relaxed(&entry->host),
		.qps = least(nupa_load_acquire(&entry->qp_limit), sb->qp_entries),
		.mrs = least(nupa_load_acquire(&entry->mr_limit), sb->mr_entries),
	};
	if (process->host >= sb->n_hosts || (host >= 0 && process->host != (uint32_t)host) ||
	    !nupa_slot_alive(fabric, slot, claim))
		return -ENOENT;
	if (!nupa_slot_foreign(fabric, slot, claim))
		process->pid = NUPA_CLAIM_PID(claim);
	memcpy(process->comm, entry->comm, sizeof(process->comm) - 1);
	error = read_arena(process, process->map.resources_off, header, sizeof(*header));
	process->rows = least(header->limit, nupa_resource_rows(sb));
	return error;
}

static int read_rows(const struct process *process, uint32_t from, struct nupa_resource_row *rows,
		     uint32_t n)
{
	return read_arena(process,
			  process->map.resources_off + sizeof(struct nupa_resource_header) +
			      from * sizeof(rows[0]),
			  rows, n * sizeof(rows[0]));
}

static int read_mrs(const struct process *process, uint32_t from, struct nupa_mr_entry *entries,
		    uint32_t n)
{
	return read_arena(process, process->map.mrs_off + from * sizeof(entries[0]), entries,
			  n * sizeof(entries[0]));
}

/* --- one resource ---------------------------------------------------------------------- */

static void begin_info(const struct process *process, uint32_t kind,
		       struct nupa_resource_info *info)
{
	*info = (struct nupa_resource_info){
		.kind = kind,
		.slot = process->slot,
		.host = process->host,
		.pid = process->pid,
		.dest_host = -1,
		.dest_slot = -1,
	};
	memcpy(info->comm, process->comm, sizeof(info->comm));
}

/* The process of the partner, by the partner's number, if it is of that host. */
static void find_partner(const struct process *process, struct nupa_resource_info *info)
{
	struct nupa_fabric *fabric = process->fabric;
	const uint32_t slot = nupa_qpn_slot(&fabric->geometry, info->dest_qpn);
	int mover;

	if (slot == 0 || slot >= fabric->geometry.n_slots ||
	    NUPA_CLAIM_STATE(nupa_slot_fetch(fabric, slot)) != NUPA_SLOT_LIVE ||
	    nupa_load_relaxed(&fabric->slots[slot].host) != (uint32_t)info->dest_host)
		return;
	info->dest_slot = (int32_t)slot;
	mover = nupa_fabric_mover(fabric, process->slot, slot);
	info->mover = mover > 0 ? (uint32_t)mover : 0;
}

/* False: it is being destroyed. */
static bool show_qp(const struct process *process, const struct nupa_resource_row *row,
		    struct nupa_resource_info *info)
{
	const struct nupa_superblock *sb = &process->fabric->geometry;
	const uint32_t index = nupa_qpn_index(sb, row->number);
	struct nupa_qp_entry entry;

	if (nupa_qpn_slot(sb, row->number) != process->slot || index >= process->qps ||
	    read_arena(process, process->map.qps_off + index * sizeof(entry), &entry,
		       sizeof(entry)) ||
	    entry.qpn != row->number)
		return false;
	info->type = entry.type;
	info->state = entry.state;
	info->send_cq = row->qp.send_cq;
	info->recv_cq = row->qp.recv_cq;
	info->srq = row->qp.srq;
	info->rq_psn = row->qp.rq_psn & 0xffffff;
	info->sq_psn = row->qp.sq_psn & 0xffffff;
	info->path_mig_state = row->qp.path_mig_state;
	if (!row->qp.dest_host || row->qp.dest_host > process->fabric->geometry.n_hosts)
		return true;
	info->dest_host = (int32_t)row->qp.dest_host - 1;
	info->dest_qpn = entry.dest_qpn & 0xffffff;
	find_partner(process, info);
	return true;
}

static void show_cm_id(const struct nupa_resource_row *row, struct nupa_resource_info *info)
{
	info->ps = row->cm.ps;
	info->cm_state = row->cm.state;
	info->family = row->cm.family;
	info->src_port = row->cm.src_port;
	info->dst_port = row->cm.dst_port;
	info->qpn = row->cm.qpn & 0xffffff;
	info->type = row->cm.qp_type;
	memcpy(info->src, row->cm.src, sizeof(info->src));
	memcpy(info->dst, row->cm.dst, sizeof(info->dst));
}

static bool show_row(const struct process *process, const struct nupa_resource_row *row,
		     struct nupa_resource_info *info)
{
	begin_info(process, row->kind, info);
	info->number = row->number;
	info->context = row->context;
	info->pd = row->pd;
	switch (row->kind) {
	case NUPA_RESOURCE_QP:
		return show_qp(process, row, info);
	case NUPA_RESOURCE_CQ:
		info->entries = row->cq.cqe;
		break;
	case NUPA_RESOURCE_SRQ:
		info->type = row->srq.type;
		info->recv_cq = row->srq.cq;
		info->entries = row->srq.max_wr;
		break;
	case NUPA_RESOURCE_CM_ID:
		show_cm_id(row, info);
		break;
	default:
		break;
	}
	return true;
}

/* Without a PD and a QP it is a DM's place. */
static bool is_region(const struct nupa_mr_entry *entry)
{
	return entry->key && (entry->pd || entry->qpn);
}

static void show_mr(const struct process *process, uint32_t index,
		    const struct nupa_mr_entry *entry, struct nupa_resource_info *info)
{
	begin_info(process, NUPA_RESOURCE_MR, info);
	info->number = process->slot << NUPA_MR_INDEX_BITS | index;
	info->pd = entry->pd;
	info->key = entry->key;
	info->access = entry->access & ~(NUPA_MR_ENTRY_WINDOW | NUPA_MR_ENTRY_RELAYED);
	info->window = (entry->access & NUPA_MR_ENTRY_WINDOW) != 0;
	info->place = entry->pool_off != UINT64_MAX     ? NUPA_MR_IN_POOL
		      : entry->shared_off != UINT64_MAX ? NUPA_MR_IN_SHARED
							: NUPA_MR_IN_PRIVATE;
	info->iova = entry->iova;
	info->length = entry->length;
}

/* --- users of PDs and CQs ---------------------------------------------------------------- */

static void use(struct nupa_resource_info *infos, uint32_t n, uint32_t number)
{
	for (uint32_t i = 0; number && i < n; i++)
		infos[i].users += infos[i].number == number;
}

static int count_users(const struct process *process, uint32_t kind,
		       struct nupa_resource_info *infos, uint32_t n)
{
	union {
		struct nupa_resource_row rows[BATCH];
		struct nupa_mr_entry mrs[BATCH];
	} seen;
	int error = 0;

	for (uint32_t at = 0; !error && at < process->rows; at += BATCH) {
		const uint32_t more = least(process->rows - at, BATCH);

		error = read_rows(process, at, seen.rows, more);
		for (uint32_t i = 0; !error && i < more; i++) {
			const struct nupa_resource_row *row = &seen.rows[i];

			if (row->kind != NUPA_RESOURCE_QP && row->kind != NUPA_RESOURCE_SRQ)
				continue;
			if (kind == NUPA_RESOURCE_PD) {
				use(infos, n, row->pd);
			} else if (row->kind == NUPA_RESOURCE_SRQ) {
				use(infos, n, row->srq.cq);
			} else {
				use(infos, n, row->qp.send_cq);
				use(infos, n, row->qp.recv_cq);
			}
		}
	}
	for (uint32_t at = 0; !error && kind == NUPA_RESOURCE_PD && at < process->mrs;
	     at += BATCH) {
		const uint32_t more = least(process->mrs - at, BATCH);

		error = read_mrs(process, at, seen.mrs, more);
		for (uint32_t i = 0; !error && i < more; i++)
			if (seen.mrs[i].key)
				use(infos, n, seen.mrs[i].pd);
	}
	return error;
}

/* --- lists --------------------------------------------------------------------------------- */

/* Those of a process from *index on: how many, or a negative errno. */
static int list_rows(const struct process *process, uint32_t kind, uint32_t *index,
		     struct nupa_resource_info *out, uint32_t max)
{
	struct nupa_resource_row rows[BATCH];
	uint32_t found = 0;
	int error;

	while (found < max && *index < process->rows) {
		const uint32_t n = least(process->rows - *index, BATCH);
		uint32_t i;

		error = read_rows(process, *index, rows, n);
		if (error)
			return error;
		for (i = 0; i < n && found < max; i++)
			if (rows[i].kind == kind)
				found += show_row(process, &rows[i], &out[found]);
		*index += i;
	}
	error = kind == NUPA_RESOURCE_PD || kind == NUPA_RESOURCE_CQ
		    ? count_users(process, kind, out, found)
		    : 0;
	return error ? error : (int)found;
}

static int list_mrs(const struct process *process, uint32_t *index, struct nupa_resource_info *out,
		    uint32_t max)
{
	struct nupa_mr_entry entries[BATCH];
	uint32_t found = 0;

	while (found < max && *index < process->mrs) {
		const uint32_t n = least(process->mrs - *index, BATCH);
		const int error = read_mrs(process, *index, entries, n);
		uint32_t i;

		if (error)
			return error;
		for (i = 0; i < n && found < max; i++)
			if (is_region(&entries[i]))
				show_mr(process, *index + i, &entries[i], &out[found++]);
		*index += i;
	}
	return (int)found;
}

static bool is_host(const struct nupa_fabric *fabric, int32_t host)
{
	return host >= -1 && host < (int32_t)fabric->geometry.n_hosts;
}

/* Each call ends with a process: count_users() looks at one. */
int nupa_fabric_resources(struct nupa_fabric *fabric, uint32_t kind, int32_t host, uint64_t *at,
			  struct nupa_resource_info *out, uint32_t max)
{
	uint64_t slot = *at >> 32;
	uint32_t index = (uint32_t)*at;
	struct nupa_resource_header header;
	struct process process;
	int found = 0;

	if (kind == NUPA_RESOURCE_NONE || kind >= NUPA_RESOURCE_KINDS || !is_host(fabric, host))
		return -EINVAL;
	if (slot == 0)
		slot = 1;
	while (max && found == 0 && slot < fabric->geometry.n_slots) {
		const int error = find_process(fabric, (uint32_t)slot, host, &process, &header);

		if (error && error != -ENOENT)
			return error;
		if (!error)
			found = kind == NUPA_RESOURCE_MR
				    ? list_mrs(&process, &index, out, max)
				    : list_rows(&process, kind, &index, out, max);
		if (found < (int)max) {
			slot++;
			index = 0;
		}
	}
	*at = slot << 32 | index;
	return found;
}

int nupa_fabric_resource(struct nupa_fabric *fabric, uint32_t kind, int32_t host, uint32_t number,
			 struct nupa_resource_info *out)
{
	struct nupa_resource_info infos[BATCH] = { 0 };
	uint64_t at = 0;
	int n;

	while ((n = nupa_fabric_resources(fabric, kind, host, &at, infos, BATCH)) > 0)
		for (int i = 0; i < n; i++)
			if (infos[i].number == number) {
				*out = infos[i];
				return 0;
			}
	return n ? n : -ENOENT;
}

static int count_mrs(const struct process *process, uint32_t *count)
{
	struct nupa_mr_entry entries[BATCH];

	for (uint32_t at = 0; at < process->mrs; at += BATCH) {
		const uint32_t n = least(process->mrs - at, BATCH);
		const int error = read_mrs(process, at, entries, n);

		if (error)
			return error;
		for (uint32_t i = 0; i < n; i++)
			*count += is_region(&entries[i]);
	}
	return 0;
}

int nupa_fabric_resource_counts(struct nupa_fabric *fabric, int32_t host, uint32_t counts[8])
{
	struct nupa_resource_header header;
	struct process process;

	if (!is_host(fabric, host))
		return -EINVAL;
	memset(counts, 0, NUPA_RESOURCE_KINDS * sizeof(counts[0]));
	for (uint32_t slot = 1; slot < fabric->geometry.n_slots; slot++) {
		int error = find_process(fabric, slot, host, &process, &header);

		if (error == -ENOENT)
			continue;
		for (uint32_t kind = 1; !error && kind < NUPA_RESOURCE_KINDS; kind++)
			counts[kind] += header.counts[kind];
		if (!error)
			error = count_mrs(&process, &counts[NUPA_RESOURCE_MR]);
		if (error)
			return error;
	}
	return 0;
}
