/* SPDX-License-Identifier: BSD-3-Clause
 * A fabric's segment: made, opened, checked, taken down.  It needs the layout only. */
#ifndef NUPA_SEGMENT_H
#define NUPA_SEGMENT_H

#include "segment/layout/layout.h"

#include <stdbool.h>
#include <sys/types.h>

struct nupa_fabric {
	int fd;
	uint32_t refs;
	pid_t opener; /* its locks are ours, not those of a process that inherited fd */
	struct nupa_superblock *sb; /* maps all up to arenas_off */
	struct nupa_superblock
	    geometry;            /* private copy of *sb, checked once: for all arithmetic (I5) */
	struct nupa_host *hosts; /* private copy, checked */
	struct nupa_port *ports;
	struct nupa_route *routes; /* private copy, checked: [src * n_hosts + dst] */
	struct nupa_host_control *controls;
	struct nupa_slot *slots;
	uint32_t *contacts; /* nupa_contact() */
	uint32_t contact_words;
	uint32_t *extents;
	struct nupa_rate_entry *rates;
	uint8_t *pool;                  /* mapped at first use */
	uint8_t *cm_tables;             /* mapped at first use */
	uint8_t *regions;               /* mapped at first use */
	uint8_t *control;               /* mapped at first use */
	uint8_t *arena[NUPA_SLOTS_MAX]; /* mapped at first use */
	uint8_t *whole;                 /* MACHINES: all of it; the others point into it */
	uint64_t whole_bytes;
	bool device;     /* it is not a file: it can only be mapped */
	bool picture;    /* all mappings are private: a child's, or fenced */
	bool fenced;     /* CAS: others declared this process dead: the mapping is private now */
	uint32_t kernel; /* MACHINES: which of the superblock's is ours; SOFTWARE: our host + 1 */
	struct nupa_bell *bell; /* processes of other kernels are woken by it; NULL: not at all */
	uint64_t boot;          /* MACHINES: nupa_kernel_id() */
	uint64_t trunk_bell;    /* CAS: the trunk's pid << 32 | our descriptor of its pipe + 1 */
	bool creator;           /* our kernel is the creator's */
	/* Those of the superblock; SOFTWARE: what the last look made of them (look.c). */
	uint32_t *port_epoch, *net_epoch;
	uint32_t own_port_epoch, own_net_epoch;
	uint64_t queues_seen;
	/* beat.c: the heartbeats of processes of other kernels, as we saw them. */
	uint64_t beats_at_ns; /* CAS: when an attachment of this process looked last */
	uint32_t silences;    /* how often one fell silent */
	struct nupa_beat {
		uint64_t claim;
		uint32_t seen;
		uint32_t silent; /* looks in a row that found no beat */
	} beats[NUPA_SLOTS_MAX];
	char path[256];
};

/* All return 0 or a negative errno; *why* (of why_bytes) then says what was
 * asked, what was found and what to do. */

/* cffi: begin */
struct nupa_fabric;
/* path NULL: a memfd, for a fabric that lives in one process. */
int nupa_fabric_create(const char *path, const char *name, const struct nupa_config *config,
		       const struct nupa_host *hosts, uint32_t n_hosts,
		       const struct nupa_port *ports, uint32_t n_ports,
		       const struct nupa_route *routes, struct nupa_fabric **out, char *why,
		       size_t why_bytes);
int nupa_fabric_open(const char *path, struct nupa_fabric **out, char *why, size_t why_bytes);
struct nupa_fabric *nupa_fabric_get(struct nupa_fabric *fabric);
void nupa_fabric_put(struct nupa_fabric *fabric);

/* Names, counts and tables.  Attachments: slot/counters.h. */
uint32_t nupa_fabric_n_hosts(const struct nupa_fabric *fabric);
uint32_t nupa_fabric_n_ports(const struct nupa_fabric *fabric);
uint32_t nupa_fabric_n_slots(const struct nupa_fabric *fabric);
uint32_t nupa_fabric_flags(const struct nupa_fabric *fabric);
uint64_t nupa_fabric_generation(const struct nupa_fabric *fabric);
uint64_t nupa_fabric_created_ns(const struct nupa_fabric *fabric);
const char *nupa_fabric_name(const struct nupa_fabric *fabric);
int nupa_fabric_fd(const struct nupa_fabric *fabric);
const struct nupa_host *nupa_fabric_host(const struct nupa_fabric *fabric, uint32_t host);
const struct nupa_port *nupa_fabric_port(const struct nupa_fabric *fabric, uint32_t port);
const struct nupa_route *nupa_fabric_route(const struct nupa_fabric *fabric, uint32_t from,
					   uint32_t to);
/* An rdma_cm id that listens (rdma_listen), in any process. */
struct nupa_listener_info {
	uint32_t slot, space, port; /* space: enum rdma_port_space */
	uint32_t ipv6;
	char address[16]; /* "any", "host", "link-local", "loopback", "machine": which of the host's
			   */
};
/* Those on a host, up to max of them; returns how many were found. */
uint32_t nupa_fabric_listeners(struct nupa_fabric *fabric, uint32_t host,
			       struct nupa_listener_info *out, uint32_t max);
/* cffi: end */

/* For the engine.  The arena of a slot, mapped at first use; NULL with errno.  Not thread safe:
 * callers hold the engine's lock or own the fabric. */
uint8_t *nupa_fabric_arena(struct nupa_fabric *fabric, uint32_t slot);
/* The pool, mapped at first use. */
uint8_t *nupa_fabric_pool(struct nupa_fabric *fabric);
/* The table of ports that are bound on a host, NUPA_CM_BUCKETS long.  NULL with errno; ENOENT: none
 * ever was.  With `back` its first use makes the table. */
struct nupa_cm_bucket *nupa_fabric_cm_table(struct nupa_fabric *fabric, uint32_t host, bool back);
/* The table of regions (region_layout.h); NULL with errno, ENOENT: there is none.  back: makes it.
 */
uint8_t *nupa_fabric_regions(struct nupa_fabric *fabric, bool back);
/* The control table (control_layout.h), likewise. */
uint8_t *nupa_fabric_control(struct nupa_fabric *fabric, bool back);
/* Backs [offset, +bytes) of the segment with memory (I4): 0, -ENOSPC, ... */
int nupa_fabric_back(struct nupa_fabric *fabric, uint64_t offset, uint64_t bytes);
/* Returns an arena's memory to the system. */
void nupa_fabric_clear_arena(struct nupa_fabric *fabric, uint32_t slot);

/* kernel.c: the kernel that we run under takes its place in the fabric's table, [1] if the fabric
 * is being made: 0 or -errno. */
int nupa_fabric_join(struct nupa_fabric *fabric);
/* This process, as claims name it. */
uint32_t nupa_fabric_owner(const struct nupa_fabric *fabric);
/* Whether the fabric is in memory that several kernels share. */
static inline bool nupa_fabric_machines(const struct nupa_fabric *fabric)
{
	return fabric->geometry.flags & NUPA_SEGMENT_MACHINES;
}

/* Whether that is not coherent (coherence.h). */
static inline bool nupa_fabric_incoherent(const struct nupa_fabric *fabric)
{
	return fabric->geometry.flags & NUPA_SEGMENT_SOFTWARE;
}

/* Another number for each boot of each machine; 0: there is no /proc to say it. */
uint64_t nupa_kernel_id(void);
/* Of the text that says it (boot_id, random(4)). */
#define NUPA_BOOT_ID_CHARS 36
uint64_t nupa_kernel_id_of(const char text[NUPA_BOOT_ID_CHARS]);
/* For tests: what it says from now on in this process; 0: the truth. */
void nupa_kernel_pretend(uint64_t id);
/* The pid namespace of this process, a number that is not 0; 0: there is no /proc to say it. */
uint32_t nupa_pid_namespace(void);

#endif
