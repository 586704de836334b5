/* SPDX-License-Identifier: BSD-3-Clause
 * Machines that share a fabric by a trunk (NUPA_SEGMENT_TRUNK).  Each has a copy of the segment,
 * and a trunk process that keeps the slots of the others in it (docs/design.md, "Trunks").
 *
 *   K1  Hosts and slots are divided among the machines when the segment is made.  A process
 * attaches to a host of its own machine, in a slot of that machine's range. K2  All that belongs to
 * other machines' slots is written by the trunk alone: the slots, their arenas, the ports of their
 * hosts and what is bound there. */
#ifndef NUPA_TRUNK_LAYOUT_H
#define NUPA_TRUNK_LAYOUT_H

#include "segment/layout/limits.h"

#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
enum nupa_machine_state {
	NUPA_MACHINE_NONE,
	NUPA_MACHINE_CONNECTING, /* it was not reached yet */
	NUPA_MACHINE_UP,
	NUPA_MACHINE_DOWN,    /* it was reached before, and is lost */
	NUPA_MACHINE_REFUSED, /* it is of another fabric, or says that we are */
	NUPA_MACHINE_STATES,
};
/* cffi: end */

/* A machine as the trunk of this one sees it.  Writer: the trunk. */
struct nupa_machine {
	_Alignas(NUPA_CACHE_LINE_BYTES) uint32_t state; /* enum nupa_machine_state */
	uint32_t losses;                                /* how often it was lost */
	uint64_t rtt_ns; /* between the two trunks, smoothed; 0: not known */
	uint64_t sent_bytes, sent_messages;
	uint64_t received_bytes, received_messages;
	uint64_t refused;  /* parts of messages that were not obeyed: not that machine's to say */
	uint64_t since_ns; /* CLOCK_REALTIME of the last change of state */
};
_Static_assert(sizeof(struct nupa_machine) == 64, "struct nupa_machine");

/* Entries of which the trunk has to send the new content (segment/trunk.c). */
#define NUPA_TRUNK_NEWS 1024u

struct nupa_trunk_area {
	/* The creator's; checked when the segment is opened. */
	_Alignas(NUPA_CACHE_LINE_BYTES) uint32_t machine; /* ours */
	uint32_t machines;                                /* how many; 0: there is no trunk */
	uint16_t first_slot[NUPA_MACHINES_MAX];           /* up to the next machine's */
	uint8_t host_machine[NUPA_HOSTS_MAX + 2];

	/* The trunk process. */
	_Alignas(NUPA_CACHE_LINE_BYTES) uint32_t pid; /* 0: there is none */
	uint32_t pid_ns;
	uint64_t start_time; /* as in struct nupa_slot */
	uint32_t settled;    /* futex: the last `wanted` that all machines have confirmed */
	uint32_t bell_fd;    /* its descriptor of the pipe that wakes it, + 1 */

	/* Any process of this machine. */
	_Alignas(NUPA_CACHE_LINE_BYTES) uint32_t sleeping; /* futex, as in struct nupa_slot */
	uint32_t wanted; /* fetch_add: all that was stored before is to be confirmed */
	uint32_t deaf;   /* a process cannot ring: the trunk looks by itself */
	uint32_t pad0;
	uint64_t news_tail; /* fetch_add: entries of `news` ever taken */
	/* lap + 1 << 32 | NUPA_NEWS of what has changed (segment/slot/machine.h) */
	_Alignas(NUPA_CACHE_LINE_BYTES) uint64_t news[NUPA_TRUNK_NEWS];

	struct nupa_machine seen[NUPA_MACHINES_MAX];
};

#endif
