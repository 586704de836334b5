/* SPDX-License-Identifier: BSD-3-Clause
 * The shared segment: what every process of a fabric sees.
 *
 *   superblock, watchers, faults, wires | hosts | ports | routes | controls | slots | contacts
 * | pool extents | past flows | past hw counters | group flows | rates | arena 1..n | pool
 * | bound ports | regions | control
 *
 * A *slot* is one attachment of a process to a host.  Its *arena* holds everything that attachment
 * publishes: QP and MR tables, flow counters, what only lookers-on read (resource_layout.h), and a
 * transmit ring for each other slot.  Each is found by arithmetic alone.
 *
 *   I1  Offsets only, never pointers.
 *   I2  Each word has one writer, named beside it, except those marked CAS.
 *   I3  The creator writes the part up to `checksum`, hosts, ports (but for
 *       state and link_downed) and routes once, before `magic`; never later.
 *   I4  The file is sparse: a page is backed (fallocate) by its owner before it
 *       is published, so a full /dev/shm is an error code and never a SIGBUS.
 *   I5  Readers trust nothing: each index and length is checked before use. */
#ifndef NUPA_LAYOUT_H
#define NUPA_LAYOUT_H

#include "segment/layout/limits.h"
#include "segment/layout/trunk_layout.h"
#include "segment/layout/wire_layout.h"

#include <stddef.h>
#include <stdint.h>

#define NUPA_MAGIC UINT64_C(0x4241464150554e01) /* "\1NUPAFAB" */
#define NUPA_LAYOUT_VERSION 16u

#define NUPA_LINE_ALIGNED _Alignas(NUPA_CACHE_LINE_BYTES)
#define NUPA_ASSERT_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)
#define NUPA_ASSERT_AT(type, field, at)                                                            \
	_Static_assert(offsetof(type, field) == (at), #type "." #field)

/* cffi: begin */
enum nupa_segment_flag {
	NUPA_SEGMENT_AUTO = 1, /* made by `nupa run`: goes with its last user */
	/* Its memory is that of a device that several kernels share (CXL, ivshmem).  All of it is
	 * there from the start.  Processes of other kernels are known by their heartbeats only and
	 * cannot be woken, so all of them poll. */
	NUPA_SEGMENT_MACHINES = 2,
	/* With MACHINES: no kernel's stores are seen by the others until both ends say so, and
	 * there are no atomics between them (coherence.h). */
	NUPA_SEGMENT_SOFTWARE = 4,
	/* One of the copies that several machines have of it, joined by a trunk (trunk_layout.h).
	 */
	NUPA_SEGMENT_TRUNK = 8,
};

enum nupa_link_layer { NUPA_LINK_INFINIBAND = 1, NUPA_LINK_ETHERNET = 2 };

enum nupa_port_state { NUPA_PORT_DOWN = 1, NUPA_PORT_ACTIVE = 4 }; /* as ibv_port_state */

enum nupa_slot_state {
	NUPA_SLOT_FREE = 0,
	NUPA_SLOT_ATTACHING = 1, /* claimed, tables not yet valid */
	NUPA_SLOT_LIVE = 2,
	NUPA_SLOT_REAPING = 3, /* claim.pid is clearing the arena */
};

/* The creator's choices; zero means the default. */
struct nupa_config {
	uint32_t slots;        /* attachments, 2..1023 (slot 0 is not used) */
	uint32_t ring_lines;   /* fast channel: 64 B lines, a power of two */
	uint32_t dma_bytes;    /* DMA channel: staging bytes, a power of two */
	uint32_t qp_entries;   /* QPs of one attachment */
	uint32_t mr_entries;   /* memory regions of one attachment */
	uint32_t extent_bytes; /* granularity of the pool */
	uint32_t flags;
	uint64_t pool_bytes;
	uint64_t segment_bytes; /* MACHINES: the memory's size; the pool takes what is left of it */
	/* TRUNK: the same on all machines, but for `machine`, which is this one. */
	uint64_t generation; /* the fabric's; 0: a random one.  Only machines that know it join */
	uint32_t machine, machines;
	uint16_t machine_slots[64]; /* the first slot of each, in order, from 1 */
	uint8_t host_machine[256];  /* the machine that has the host */
};

struct nupa_host {
	char name[32];
	uint32_t port;       /* index of its port in the port table */
	uint32_t link_layer; /* enum nupa_link_layer */
	uint32_t ipv4;       /* host byte order, 10.0.0.N */
	uint16_t lid;
	uint8_t mac[6];
	uint8_t reserved[12];
};

struct nupa_port {
	char name[32]; /* "host0/1", "switch0/3" */
	uint32_t peer; /* index of the port at the other end of the link */
	uint32_t is_switch;
	uint32_t node;   /* index of the host or switch */
	uint32_t number; /* port number on its node */
	uint32_t width_lanes;
	uint32_t speed_mtps;  /* mega-transfers a second per lane: Gen5 = 32000 */
	uint32_t state;       /* enum nupa_port_state; exchanged by the controller, and by flaps */
	uint32_t link_downed; /* fetch_add by who took it down */
};

/* Ports a frame passes from host s to host d: the port of s, ingress and egress port of each
 * switch, the port of d. */
struct nupa_route {
	uint16_t hops;
	uint16_t port[15];
};

/* What a host may do in its fabric. */
enum nupa_host_state {
	NUPA_HOST_READY = 0,
	NUPA_HOST_ABSENT,     /* its place in the topology is free */
	NUPA_HOST_ONBOARDING, /* being checked: nothing attaches yet */
	NUPA_HOST_DRAINING,   /* who is there stays, nobody attaches */
	NUPA_HOST_FAILED,     /* refused by the admission policy, or given up */
	NUPA_HOST_STATES,
};
/* cffi: end */

/* What the control plane says of a host and its port.  Writer: the holder of the control lock, who
 * announces a change by port_epoch (nupa_fabric_announce). */
struct nupa_host_control {
	uint32_t state;  /* enum nupa_host_state */
	uint32_t tenant; /* its id; 0: none */
	uint32_t sm_lid; /* of the subnet manager that set it (PortInfo.MasterSMLID); 0: none did */
	uint32_t pad[13];
	uint16_t pkeys[NUPA_PKEYS_MAX]; /* the P_Key table (IBTA 10.9.2): 0: invalid */
};
_Static_assert(sizeof(((struct nupa_config *)0)->machine_slots) ==
		   NUPA_MACHINES_MAX * sizeof(uint16_t),
	       "machines");
NUPA_ASSERT_SIZE(struct nupa_host_control, 64 + 2 * NUPA_PKEYS_MAX);
NUPA_ASSERT_SIZE(struct nupa_host, 64);
NUPA_ASSERT_SIZE(struct nupa_port, 64);
NUPA_ASSERT_SIZE(struct nupa_route, 32);

/* cffi: begin */
/* The levels of the stack that captures record; bits. */
enum nupa_trace_level {
	NUPA_TRACE_TLP = 1,
	NUPA_TRACE_QUEUE = 2,
	NUPA_TRACE_TRANSPORT = 4,
	NUPA_TRACE_NET = 8,
};

enum nupa_fault_kind {
	NUPA_FAULT_DROP = 1,
	NUPA_FAULT_DUPLICATE,
	NUPA_FAULT_REORDER, /* behind the one that comes next, or after duration_ns */
	NUPA_FAULT_DELAY,   /* by duration_ns; what comes later waits behind it */
	NUPA_FAULT_CORRUPT, /* the link's CRC finds it: sent again duration_ns later, counted */
	NUPA_FAULT_POISON,
	NUPA_FAULT_FLAP,      /* the port goes down for duration_ns */
	NUPA_FAULT_BANDWIDTH, /* bytes_per_s at most pass */
	NUPA_FAULT_STUCK,     /* completions of the sender's QP stop for duration_ns; 0: for ever */
	NUPA_FAULT_KILL,      /* the receiver's QP ends */
	NUPA_FAULT_TIMEOUT,   /* RC: what a peer does not take in time counts as lost */
	NUPA_FAULT_KINDS,
};

/* cffi: end */

/* A fault of a port: what happens to messages that pass it.  Writer: the holder of the control
 * lock, unless a field says otherwise. */
struct nupa_fault_entry {
	uint32_t id; /* 0: none; grows, so that it means one fault for ever.  Stored last */
	uint32_t kind;
	uint32_t port;        /* every message whose route passes it, in either direction */
	uint32_t probability; /* of 2^32 - 1, which is always */
	uint64_t seed;        /* message n is hit or not by this alone */
	uint64_t after;       /* messages that pass first */
	uint64_t count;       /* how many are hit at most; 0: no end */
	uint64_t until_ns;    /* CLOCK_MONOTONIC; 0: until it is cleared */
	uint64_t duration_ns;
	uint64_t bytes_per_s;
	/* Its own line: those who judge messages. */
	NUPA_LINE_ALIGNED uint64_t seen; /* fetch_add: messages judged */
	uint64_t hits;                   /* fetch_add */
	uint64_t free_at_ns;             /* CAS: BANDWIDTH: when the link is free again */
	uint64_t down_until_ns;          /* CAS: FLAP: the port is down until then; 0: it is not */
	uint64_t over_ns; /* its hits are used up, and the last one's effect ends then; 0: no */
	uint32_t ended;   /* a process has seen that it is over */
	uint32_t pad0;
	uint64_t pad[2];
};
NUPA_ASSERT_SIZE(struct nupa_fault_entry, 128);
#define NUPA_FAULTS_MAX 64u

/* A watcher.  Writer: the holder of the control lock; a dead watcher's is free. */
struct nupa_watcher {
	uint32_t pid;        /* 0: free.  Stored last */
	uint32_t levels;     /* enum nupa_trace_level */
	uint32_t snap_bytes; /* of each packet's payload */
	uint32_t pid_ns;
	uint64_t start_time;
	uint64_t pad;
};
NUPA_ASSERT_SIZE(struct nupa_watcher, 32);
#define NUPA_WATCHERS_MAX 64u

/* The word that all look at: levels of all captures, the longest snap length.  0: none. */
#define NUPA_TRACE_WORD(levels, snap_bytes) ((uint32_t)(snap_bytes) << 4 | (uint32_t)(levels))
#define NUPA_TRACE_LEVELS(word) ((word)&15u)
#define NUPA_TRACE_SNAP_BYTES(word) ((word) >> 4)

struct nupa_superblock {
	uint64_t magic; /* stored last */
	uint32_t layout_version;
	uint32_t flags;
	uint64_t generation; /* random; tells two fabrics of one name apart */
	uint64_t segment_bytes;
	uint32_t n_hosts, n_ports, n_slots;
	uint32_t ring_lines, dma_bytes;
	uint32_t qp_entries, mr_entries;
	uint64_t hosts_off, ports_off, routes_off, controls_off, slots_off, extents_off;
	uint64_t arenas_off, arena_bytes;
	uint64_t pool_off, pool_bytes;
	uint32_t extent_bytes;
	uint32_t n_extents;
	uint64_t created_ns; /* CLOCK_REALTIME */
	char name[64];
	uint32_t checksum; /* of all above but magic, and of hosts, port identities and routes */

	/* Bumped (fetch_add) after any port's state, `trace` or fault_epoch changed; cached by
	 * attachments, which look at nothing else of these while they poll. */
	NUPA_LINE_ALIGNED uint32_t port_epoch;
	/* Bumped (fetch_add) after a multicast membership changed; cached by senders. */
	uint32_t mcast_epoch;
	/* Bumped (fetch_add) after a queue of a network interface came or went; likewise. */
	uint32_t net_epoch;
	/* Bumped (fetch_add) after a fault was added, cleared or has come to its end. */
	uint32_t fault_epoch;
	/* NUPA_TRACE_WORD of all watchers.  Writer: who holds the control lock. */
	uint32_t trace;
	uint32_t next_fault_id; /* same writer */
	/* Stored as 1 once the table of regions is backed; who uses none never looks. */
	uint32_t regions_backed;
	/* The same of the control table. */
	uint32_t control_backed;
	/* 1 << enum nupa_quota_kind: any tenant has such a quota.  Writer: who holds the control
	 * lock. */
	uint32_t quotas;
	/* Bumped (fetch_add) after a rate was set.  Writer: who holds the control lock. */
	uint32_t rate_epoch;

	NUPA_LINE_ALIGNED struct nupa_watcher watchers[NUPA_WATCHERS_MAX];
	struct nupa_fault_entry faults[NUPA_FAULTS_MAX];
	struct nupa_wire_entry wires[NUPA_WIRES_MAX];
	/* MACHINES: the kernels that ever opened it (CAS, once), by a hash of their boot ids;
	 * claims have the index.  [1] is the creator's.  Others: all are kernel 0.  SOFTWARE: only
	 * [1] is used, claims have the host's index + 1. */
	uint64_t kernels[NUPA_KERNELS_MAX];
	struct nupa_trunk_area trunk;
};
NUPA_ASSERT_SIZE(struct nupa_superblock,
		 320 + 64 * 32 + 64 * 128 + 16 * 384 + 1024 * 8 + sizeof(struct nupa_trunk_area));
NUPA_ASSERT_AT(struct nupa_superblock, port_epoch, 256);

/* claim word (CAS): kernel << 54 | pid << 32 | epoch << 8 | state.  The epoch grows with every
 * owner of the slot, to NUPA_EPOCH_MAX; words with an old epoch are ignored.  A pid has 22 bits at
 * most (PID_MAX_LIMIT in proc(5)); kernel << 22 | pid is called the owner. */
#define NUPA_CLAIM(owner, epoch, state)                                                            \
	((uint64_t)(uint32_t)(owner) << 32 | ((uint64_t)(epoch)&0xffffff) << 8 | (uint64_t)(state))
#define NUPA_OWNER(kernel, pid) ((uint32_t)(kernel) << 22 | ((uint32_t)(pid)&0x3fffff))
#define NUPA_CLAIM_OWNER(c) ((uint32_t)((c) >> 32))
#define NUPA_CLAIM_PID(c) (NUPA_CLAIM_OWNER(c) & 0x3fffff)
#define NUPA_CLAIM_KERNEL(c) ((uint32_t)((c) >> 54))
#define NUPA_CLAIM_EPOCH(c) ((uint32_t)((c) >> 8) & 0xffffff)
#define NUPA_CLAIM_STATE(c) ((uint32_t)(c)&0xff)

#define NUPA_EPOCH_MAX 0x3fffffu /* then 1: 0 says that the slot never had an owner */

#define NUPA_LANES_MAX 9u
#define NUPA_SLOT_WORDS ((NUPA_SLOTS_MAX + 63) / 64) /* with a bit for each slot */

struct nupa_slot {
	/* Line 0, the owner's identity. */
	uint64_t claim;      /* CAS */
	uint64_t start_time; /* of the pid, /proc/PID/stat field 22: guards against pid reuse */
	uint64_t probe_addr; /* private address that holds probe_value: mover self-test */
	uint64_t probe_value;
	uint32_t host;
	uint32_t uid;
	uint32_t qp_limit; /* QP table entries that are backed; grows only */
	uint32_t mr_limit; /* same for the MR table */
	char comm[16];

	/* Line 1: the doorbell.  `sleeping` is the futex: the owner stores 1 before it sleeps; a
	 * process that finds 1 exchanges it with 0 and wakes. */
	NUPA_LINE_ALIGNED uint32_t sleeping;
	uint32_t next_qp_index; /* owner; survives owners, so QPNs are not reused at once */
	uint32_t next_mr_index; /* same for keys */
	uint32_t mcast_limit;   /* owner: entries of its multicast table that may be in use */
	uint32_t has_xrcds;     /* owner: its table of XRC domains is backed */
	uint32_t pool_regions;  /* owner: regions in pool memory, now */
	uint8_t needs_fence;    /* owner: it cannot membarrier, so producers must fence (P3) */
	uint8_t leaves_some;    /* owner: `unattended` is not empty */
	uint32_t left_epoch;    /* owner: its epoch, when it leaves with all QPs destroyed */
	uint32_t shared_fd;     /* owner: its descriptor of the memfd with promoted memory, + 1 */
	uint32_t life;          /* owner, at its end the kernel: see life.c */
	uint32_t life_fd;       /* owner: a descriptor that closes at its end, + 1 */
	uint32_t pid_ns;        /* owner: the namespace of its pid; 0: not known */
	uint32_t pds_made;      /* owner: how many numbers of PDs it has given out */
	uint32_t net_queue;  /* owner: it is this queue, + 1, of its host's network interface; with
			      * NUPA_NET_COALESCED: which takes UDP datagrams in one frame */
	uint32_t trace_seen; /* owner: the superblock's `trace` that it goes by */
	uint32_t fault_seen; /* owner: the fault_epoch that it goes by */

	/* Line 2: hazard.  Target slot << 32 | MR index + 1 while the owner copies directly
	 * to or from that region, else 0.  Dereg waits for it (see mr.c, P4/C4).  So many of
	 * `lanes` may have one, too. */
	NUPA_LINE_ALIGNED uint64_t hazard;
	uint32_t n_lanes; /* owner; grows only */

	/* Line 3: incremented (fetch_add) by each process that wrote a contact for this slot;
	 * not by other kernels where memory is not coherent.  The owner reads it together with the
	 * next, which each process increments that set its bit of `announced`. */
	NUPA_LINE_ALIGNED uint32_t contact_epoch;
	uint32_t announcements;
	uint64_t boot;          /* MACHINES, owner: nupa_kernel_id() */
	uint32_t backlogs;      /* owner: QPs with a backlog (backlog.c) */
	uint32_t backlog_moves; /* owner: grows when a backlog shrinks */

	/* Line 4: MACHINES: counts while its owner lives (beat.c). */
	NUPA_LINE_ALIGNED uint32_t heartbeat;
	uint32_t doorbell;  /* owner: its number among those who ring, + 1; 0: it has none */
	uint32_t asleep;    /* owner: which of its sleeps this is; 0: it is awake (bell.h) */
	uint32_t rate_seen; /* owner: the rate_epoch that it goes by */
	uint64_t used[5];   /* owner: by enum nupa_quota_kind; of the pool: extents say it */
	/* Owner: 0: a process; else the QP that is the QP 1 of a kernel, or NUPA_GSI_NONE. */
	uint32_t gsi_qpn;

	/* Owner's threads that share its lock: one each, in a line of its own. */
	struct {
		NUPA_LINE_ALIGNED uint64_t hazard;
	} lanes[NUPA_LANES_MAX];

	/* Bits of slots (attention.h).  Owner: at whose rings it does not look. */
	NUPA_LINE_ALIGNED uint64_t unattended[NUPA_SLOT_WORDS];
	/* Set (fetch_or) by those: something lies in their ring.  The owner takes them. */
	NUPA_LINE_ALIGNED uint64_t announced[NUPA_SLOT_WORDS];
};
NUPA_ASSERT_SIZE(struct nupa_slot, 5 * 64 + NUPA_LANES_MAX * 64 + 2 * NUPA_SLOT_WORDS * 8);
NUPA_ASSERT_AT(struct nupa_slot, announcements, offsetof(struct nupa_slot, contact_epoch) + 4);
#define NUPA_NET_COALESCED 0x80000000u
#define NUPA_GSI_NONE 1u
/* Contacts: a row of n_slots words for each slot, in whole lines.  Writer: the owner of the slot.
 * Word s is the epoch of slot s when this one opened its ring to it; with NUPA_CONTACT_CLOSED: when
 * it closed it for good. */
#define NUPA_CONTACT_CLOSED 0x80000000u
NUPA_ASSERT_AT(struct nupa_slot, sleeping, 64);

/* A QP as its peers see it.  Writer: the owner of the arena. */
struct nupa_qp_entry {
	/* Its first two words are also read as 64 bits each: identity and rights. */
	uint32_t qpn;      /* 0: none */
	uint8_t state;     /* enum ibv_qp_state */
	uint8_t type;      /* enum ibv_qp_type */
	uint16_t pkey;     /* of its pkey_index; 0: not set */
	uint32_t access;   /* qp_access_flags */
	uint32_t dest_qpn; /* RC, UC: the only QP that may reach it */
	uint32_t pd;       /* PD handle, compared with the region's */
	uint32_t qkey;
	uint32_t incarnation; /* 8 bits: grows with each RESET; requests carry it */
	uint8_t min_rnr_timer;
	uint8_t pad0[3];
	uint64_t xrcd_dev, xrcd_ino; /* XRC_RECV: its domain */
	uint32_t backlog;            /* UC, UD: messages wait for a receive */
	uint32_t pad[3];
};
NUPA_ASSERT_SIZE(struct nupa_qp_entry, 64);
NUPA_ASSERT_AT(struct nupa_qp_entry, access, 8);
NUPA_ASSERT_AT(struct nupa_qp_entry, dest_qpn, 12);

/* A memory region, a bound window or a DM as peers see it.  Writer: the owner of the arena. */
struct nupa_mr_entry {
	/* Lkey and rkey; 0: none.  Stored last, cleared first.  With what stands beside it, it
	 * never comes again, so who has seen both (as one word) knows the rest. */
	uint32_t key;
	uint32_t changes; /* grows with each key; survives deregistration */
	uint32_t access;  /* ON_DEMAND: the memory at va may not be there */
	uint32_t pd;      /* 0: no PD; see qpn */
	uint64_t iova;    /* the address in work requests */
	uint64_t length;
	uint64_t va;         /* where it is in the owner's address space */
	uint64_t pool_off;   /* where it is in the pool; ~0: private memory */
	uint64_t shared_off; /* where it is in the owner's memfd (slot.shared_fd); ~0: it is not */
	uint32_t qpn;        /* where pd is 0: the only QP it works on (a type 2 window) */
	uint32_t check;      /* of all the rest: who follows a stray store ends anywhere */
};
NUPA_ASSERT_SIZE(struct nupa_mr_entry, 64);
NUPA_ASSERT_AT(struct nupa_mr_entry, qpn, 56);
NUPA_ASSERT_AT(struct nupa_mr_entry, changes, 4);

/* Traffic of one attachment with one other host; port counters are derived by
 * adding flows along their route.  Writer: the owner of the arena.
 * When it goes they are added (fetch_add) to the past flows, [from host * n_hosts + to host]. */
struct nupa_flow {
	uint64_t xmit_bytes, xmit_packets; /* towards the host */
	uint64_t rcv_bytes, rcv_packets;   /* fetched from the host: read responses moved by us */
	uint64_t xmit_wait;                /* operations that found the path down */
	uint64_t xmit_discards;            /* given up because of it */
	/* Of the fast channel, in rings that are closed: lines.c.  In a ring's first lap, later. */
	uint64_t lines_first, lines_again;
};
NUPA_ASSERT_SIZE(struct nupa_flow, 64);

/* Requests of groups that left by a port: they go to many hosts, so no flow from host to host has
 * them.  fetch_add. */
struct nupa_group_flow {
	uint64_t bytes, packets;
};
NUPA_ASSERT_SIZE(struct nupa_group_flow, 16);

/* cffi: begin */
/* Counts of messages dropped, repeated or invalid; names as in the kernel's hw_counters
 * where it has them.  Writer: the owner of the arena.
 * When it goes they are added (fetch_add) to the past ones of its host. */
struct nupa_hw_counters {
	uint64_t rx_no_receive;      /* UC, UD: dropped: no receive was posted */
	uint64_t rx_out_of_sequence; /* RC: NAKed or dropped; UC: a gap, its message dropped */
	uint64_t duplicate_request;  /* RC: had been executed before */
	uint64_t rx_invalid; /* dropped: no such QP, not ready, length, group or (UC) key wrong */
	uint64_t qkey_violations;       /* UD: dropped */
	uint64_t pkey_violations;       /* of another partition: refused or dropped */
	uint64_t rx_icrc_errors;        /* injected packets: dropped */
	uint64_t rx_injected;           /* injected packets that came, all of them */
	uint64_t packet_seq_err;        /* requester: NAKs for a lost packet */
	uint64_t local_ack_timeout_err; /* requester: sent again, since no answer came */
	uint64_t fault_dropped, fault_duplicated, fault_reordered, fault_delayed;
	uint64_t link_retries; /* corrupt packets that a link sent again */
	uint64_t fault_poisoned, fault_flaps, fault_stuck, fault_killed;
	uint64_t tx_no_room; /* UC, UD: dropped by the sender: the receiver takes nothing */
	uint64_t multicast_xmit_packets;     /* verbs, to other hosts: one for each member there */
	uint64_t multicast_rcv_packets;      /* same, that came, dropped ones too */
	uint64_t send_rnr_err, rcvd_rnr_err; /* RC: RNR NAKs of the responder, at the requester */
	uint64_t retry_exceeded_err, retry_rnr_exceeded_err; /* requests completed with these */
	uint64_t reserved[6];
};
/* cffi: end */
#define NUPA_HW_COUNTERS 32u /* each a word */
NUPA_ASSERT_SIZE(struct nupa_hw_counters, NUPA_HW_COUNTERS * sizeof(uint64_t));

/* A QP in a multicast group.  Writer: the owner of the arena. */
struct nupa_mcast_entry {
	uint8_t mgid[16];
	uint32_t qpn; /* 0: none.  Stored last, cleared first */
	uint32_t pad[3];
};
NUPA_ASSERT_SIZE(struct nupa_mcast_entry, 32);

/* cffi: begin */
/* Counts of frames of one queue of a host's network interface.  tx: from the host to the fabric.
 * Writer: the owner of the arena. */
struct nupa_net_counters {
	uint64_t tx_packets, tx_bytes; /* a frame that goes to many is one */
	uint64_t rx_packets, rx_bytes;
	uint64_t tx_unknown;  /* dropped: no host has that address */
	uint64_t tx_down;     /* dropped: the interface there, or a port on the way, is down */
	uint64_t tx_full;     /* dropped: the receiver takes nothing */
	uint64_t tx_invalid;  /* dropped: runt, longer than the MTU, or nonsense in its header */
	uint64_t rx_invalid;  /* the same of what came from the fabric */
	uint64_t rx_refused;  /* dropped: the interface did not take it */
	uint64_t tx_answered; /* ARP and ND requests that were answered on the spot */
	uint64_t tx_copied;   /* went elsewhere than the one before, so were copied once more */
	uint64_t carrier_changes;
	uint64_t tx_partition; /* dropped: the host there shares no partition with this one */
	uint64_t rx_partition; /* the same of what came */
	uint64_t reserved[1];
};
/* cffi: end */
NUPA_ASSERT_SIZE(struct nupa_net_counters, 128);

enum nupa_xrcd_state { NUPA_XRCD_NONE, NUPA_XRCD_OPENING, NUPA_XRCD_OPEN };

/* An XRC domain that is open, by the file it is known by.  Writer: the owner of the arena. */
struct nupa_xrcd_entry {
	uint64_t dev, ino;
	uint32_t state; /* stored last */
	uint32_t pad[3];
};
NUPA_ASSERT_SIZE(struct nupa_xrcd_entry, 32);

/* Records of the arena's owner for watchers: trace.h.  Backed with the first record. */
struct nupa_trace_header {
	uint64_t
	    begun; /* bytes ever begun to be written: what lies NUPA_TRACE_BYTES before is gone */
	uint64_t tail;  /* bytes ever written, whole records */
	uint32_t epoch; /* of the owner; records of a former one are gone */
	uint32_t pad[11];
};
NUPA_ASSERT_SIZE(struct nupa_trace_header, 64);
#define NUPA_TRACE_BYTES (4u << 20) /* a power of two */

/* One direction of a channel, in the arena of the producer:
 *   header | ring_lines * 64 B | dma_bytes
 *
 * The ring is the fast channel, one message a line.  The DMA channel is a byte ring: a message's
 * payload lies contiguous in it, in whole lines, in message order. */
struct nupa_ring_header {
	/* Line 0, producer. */
	uint64_t pair;        /* producer epoch << 32 | consumer epoch; 0: closed */
	uint32_t mover;       /* how the producer moves bulk to and from the consumer */
	uint32_t dma_backed;  /* the DMA bytes are backed by memory */
	uint32_t pulls;       /* enum nupa_pulls: how it fetches what the consumer sends */
	uint32_t consumer;    /* the consumer's host, + 1; 0: none yet */
	uint32_t lines;       /* of a ring that grows (ring.h I6): in use now; 0: all, always */
	uint32_t grown_lap;   /* the lap in which it came to them */
	uint64_t grown_after; /* how many lines were written before */
	/* Line 1, consumer: consumed lines, tagged: producer epoch << 40 | count. */
	NUPA_LINE_ALIGNED uint64_t head;
	/* Line 2, consumer: consumed DMA bytes (gaps at the wrap included), tagged likewise. */
	NUPA_LINE_ALIGNED uint64_t dma_head;
	NUPA_LINE_ALIGNED uint64_t pad[8];
};
NUPA_ASSERT_SIZE(struct nupa_ring_header, 256);

/* An extent of the pool belongs to the process that CASes its word from 0 to slot << 22 | epoch; a
 * dead owner's extents are free.  Slot 0: a pid.  NUPA_SLOTS_MAX, which is no slot: a row of the
 * table of regions. */
#define NUPA_EXTENT(slot, low) ((uint32_t)(slot) << 22 | ((uint32_t)(low)&0x3fffff))
#define NUPA_EXTENT_SLOT(word) ((uint32_t)(word) >> 22)
#define NUPA_EXTENT_LOW(word) ((uint32_t)(word)&0x3fffff)

/* rdma_cm's ports, a table for each host behind the pool.  A word (CAS) is a bound port and its
 * owner, see engine/cm/ports.c; what a dead owner left is free.  The word of a host before the
 * arenas (CAS, 0 to 1) says that its table is backed (I4). */
struct nupa_cm_bucket {
	NUPA_LINE_ALIGNED uint64_t words[NUPA_CM_BUCKET_WORDS];
};
NUPA_ASSERT_SIZE(struct nupa_cm_bucket, 64);
#define NUPA_CM_WORD_SLOT(word) ((uint32_t)((word) >> 24) & ((1u << NUPA_SLOT_BITS) - 1))
#define NUPA_CM_TABLE_BYTES ((uint64_t)NUPA_CM_BUCKETS * sizeof(struct nupa_cm_bucket))

#endif
