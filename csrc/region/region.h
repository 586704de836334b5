/* SPDX-License-Identifier: BSD-3-Clause
 * Regions: memory that hosts share.  A region is a row in a table of the segment: bytes of the
 * pool, their owner, the hosts that may map them, their coherence.  A window is a mapping of a
 * region by some process.  A region is revoked before it is freed.  Its memory is not reused before
 * the last window is closed.
 *
 * Regions need the pool and the table only.  Neither the data path nor an attachment touches the
 * table before a first region is made.
 *
 * All return 0 or a negative errno; all -EOPNOTSUPP where the fabric's memory is not coherent. */
#ifndef NUPA_REGION_H
#define NUPA_REGION_H

#include "segment/segment.h"

/* cffi: begin */
enum nupa_region_coherence { NUPA_COHERENT_HARDWARE = 0, NUPA_COHERENT_SOFTWARE = 1 };
enum nupa_region_state {
	NUPA_REGION_FREE,
	NUPA_REGION_MAKING,
	NUPA_REGION_LIVE,
	NUPA_REGION_REVOKED,
};

/* A region; also what one is wished to be, with id, state, mapped, orphan, home
 * and links left out. */
struct nupa_region_info {
	uint64_t id;  /* never given twice: serial << 16 | index; 0: none */
	char tag[32]; /* text, NUL-terminated; may be empty */
	uint64_t bytes;
	uint32_t host;      /* owner */
	uint32_t pid, slot; /* owner's process, 0: the host, which keeps it until it is freed;
			     * slot 0: no attachment */
	uint64_t share[4];  /* hosts that may map it, beside the owner; bit h of word h / 64 */
	uint32_t coherence, state;
	uint32_t mapped;            /* windows now */
	uint32_t ways, granularity; /* 1, 0: one piece */
	uint64_t pieces[16];        /* pool offsets; of bytes / ways each */
	uint32_t published; /* 1: the memory belongs to a device of the CXL model, not to the row */
	uint32_t orphan;    /* its owner died; kept as it was shared */
	uint32_t home;      /* the host at whose switch the memory is: the one that made it */
	uint32_t links;     /* of map_begin: nupa_region_linked */
};

struct nupa_quota {
	uint64_t limit_bytes; /* ~0: none */
	uint64_t used_bytes;  /* by regions the host owns, in whole extents; published ones are not
			       * counted */
};

/* Makes a region with memory of its own, zeroed and backed: one piece.  `slot` is the caller's own,
 * or 0.  `wish->pid` is the caller's, or 0 for the host (slot 0 only).  -EDQUOT: the host's quota.
 * -ENOMEM: no run of free extents.  -ENOSPC: the file system is full.  -ENFILE: the table is full.
 * -EINVAL: no such host, size or text.  -EPERM: not its slot or pid.  -EACCES: the tag is another
 * tenant's.  -EOPNOTSUPP: several machines share the fabric, so a process needs a slot. */
int nupa_region_alloc(struct nupa_fabric *fabric, uint32_t slot,
		      const struct nupa_region_info *wish, struct nupa_region_info *out);
/* Makes a region over pieces of the pool that the caller has (wish->slot, as above).  The
 * granularity of several pieces is a power of two from 64.  Pieces need not be backed: map_begin
 * does that.  The caller cannot free them before it has freed the region.  -EPERM: they are not its
 * own. */
int nupa_region_publish(struct nupa_fabric *fabric, const struct nupa_region_info *wish,
			struct nupa_region_info *out);
/* Ends a region, whosever it is.  -EBUSY: windows are open, and !force.  force: revokes it, and
 * waits until every window of a living process is closed.  -ETIMEDOUT: one is still open after 5 s,
 * so the memory is kept until it closes.  -ESTALE: gone. */
int nupa_region_free(struct nupa_fabric *fabric, uint64_t id, bool force);
/* The region in a place of the table, below nupa_region_limit(): LIVE or REVOKED.  -ENOENT: there
 * is none; -EUCLEAN: the row is damaged; -EAGAIN: a process has been changing it for too long. */
int nupa_region_get(struct nupa_fabric *fabric, uint32_t index, struct nupa_region_info *out);
uint32_t nupa_region_limit(struct nupa_fabric *fabric);
/* -ESTALE: gone. */
int nupa_region_find(struct nupa_fabric *fabric, uint64_t id, struct nupa_region_info *out);
/* -EBUSY if a host that maps it would lose it. */
int nupa_region_share(struct nupa_fabric *fabric, uint64_t id, const uint64_t share[4]);
/* An orphan gets a new owner: a host that shares it, wish's host, slot and pid, as for alloc.
 * -EACCES: that host does not; -EALREADY: it is not an orphan; -EDQUOT. */
int nupa_region_adopt(struct nupa_fabric *fabric, uint64_t id, const struct nupa_region_info *wish);
/* ~0: no limit.  One below what is used takes nothing away, but nothing more is given. */
int nupa_region_set_quota(struct nupa_fabric *fabric, uint32_t host, uint64_t bytes);
int nupa_region_quota(struct nupa_fabric *fabric, uint32_t host, struct nupa_quota *out);

/* An attachment of this process to the host; 0: it has none. */
uint32_t nupa_region_slot(struct nupa_fabric *fabric, uint32_t host);
/* A window of this process on host *host* begins, ends.  The memory is backed.  *mapping* names it.
 * It counts until map_end, or the process's end.  -EACCES: the host may not.  -EPERM: the memory is
 * another tenant's.  -ESTALE: gone or revoked.  -ENETDOWN: a link between the host and the memory
 * is down.  -ENFILE: too many windows. -ENOSPC: the file system is full.  -EOPNOTSUPP: several
 * machines share the fabric, and this process is not attached to the host. */
int nupa_region_map_begin(struct nupa_fabric *fabric, uint64_t id, uint32_t host,
			  struct nupa_region_info *out, uint32_t *mapping);
/* -EINVAL: not a window of this process, or no longer. */
int nupa_region_map_end(struct nupa_fabric *fabric, uint32_t mapping);
/* Open windows of a region: up to *max* of them in *out*, and how many there are. */
struct nupa_region_window {
	uint32_t host;
	uint32_t pid; /* in its own pid namespace */
};
uint32_t nupa_region_windows_of(struct nupa_fabric *fabric, uint64_t id,
				struct nupa_region_window *out, uint32_t max);
/* The word that changes (futex, FUTEX_WAKE) when any region is revoked, or a port's state is set;
 * NULL with errno.  A process that sees it change calls nupa_region_find for each of its windows
 * (REVOKED, or -ESTALE), and nupa_region_linked. */
const uint32_t *nupa_region_epoch(struct nupa_fabric *fabric);

/* Followers act on changes of ports before nupa_region_await_links returns to who made them.  A
 * follower is a place in the table of windows, until map_end or the process's end.  -EOPNOTSUPP:
 * several machines share the fabric; -ENFILE. */
int nupa_region_follow(struct nupa_fabric *fabric, uint32_t *follower);
/* All that was announced up to *epoch*, a value of the word, has been acted on.  -EINVAL: not a
 * follower of this process. */
int nupa_region_heed(struct nupa_fabric *fabric, uint32_t follower, uint32_t epoch);
/* Waits until the word is not *epoch*, which is its value then, or timeout_ms have passed. */
int nupa_region_await_epoch(struct nupa_fabric *fabric, uint32_t *epoch, uint32_t timeout_ms);
/* Sets one port's state, counts link_downed, tells every attachment.  -EREMOTE: only the creator's
 * kernel may, as memory is not coherent. */
int nupa_fabric_set_port(struct nupa_fabric *fabric, uint32_t port, uint32_t state);
/* A port's state was set: windows and followers are told.  nupa_fabric_set_port does it. */
void nupa_region_links_changed(struct nupa_fabric *fabric);
/* After nupa_fabric_set_port: waits until the windows behind links that went down are gone, and all
 * followers have acted.  -ETIMEDOUT: a living process has not for 5 s. */
int nupa_region_await_links(struct nupa_fabric *fabric);

/* Backs [offset, +bytes) of the pool, which is reserved, with memory.  -EINVAL: it is not reserved;
 * -ENOSPC. */
int nupa_region_back(struct nupa_fabric *fabric, uint64_t offset, uint64_t bytes);
/* cffi: end */

/* Whether all links are up between *host* and memory at the switch of host *home*; *downs*: how
 * often they went down, added.  A window is lost once this is false, or *downs* has changed. */
bool nupa_region_linked(const struct nupa_fabric *fabric, uint32_t host, uint32_t home,
			uint32_t *downs);

#endif
