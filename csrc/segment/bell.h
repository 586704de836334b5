/* SPDX-License-Identifier: BSD-3-Clause
 * Doorbells between kernels: they wake the port thread of a process under another kernel, where the
 * memory is that of ivshmem devices (QEMU, docs/specs/ivshmem-spec.rst).
 *
 * NUPA_BELL names a Unix socket.  On the machine it is the ivshmem server's, and each process is a
 * client of it, as each guest's QEMU is.  In a guest it is that of nupa-guest (bell_guest.h), and
 * all processes of the guest have its one number and its one interrupt.
 *
 *   slot->doorbell   the number under which the owner is rung, + 1.  Its owner can ring others,
 *                    too.  A sleeper sleeps long only if all attachments have one.
 *
 *   slot->asleep     grows with each sleep of the owner, 0 while it is awake.  A producer rings
 *                    once for each sleep.  Only the owner stores it.
 *
 * A ring that gets lost costs time only: the longest sleep is NUPA_BELL_SLEEP_NS. */
#ifndef NUPA_BELL_H
#define NUPA_BELL_H

#include "segment/segment.h"

#include <pthread.h>

/* Of clients, below this: our server gives no others (nupa/vm/machine/doorbell.py). */
#define NUPA_BELL_NUMBERS 1024u
#define NUPA_BELL_SLEEP_NS UINT64_C(100000000)

/* One for each fabric that this process has open. */
struct nupa_bell {
	uint32_t number; /* ours, + 1; 0: the server is gone, so newcomers may be unknown to us */
	int event;       /* a peer that rings us writes to this eventfd */
	int server;      /* the socket to the ivshmem server; -1 in a guest */
	volatile uint32_t *registers; /* in a guest: the device's */
	/* With the mutex: a descriptor that is closed may be another file's at once. */
	pthread_mutex_t mutex;
	int peers[NUPA_BELL_NUMBERS]; /* eventfds of the other clients; -1: none */
};

/* bell_client.c.  NULL where there is none to be had: *why* says why. */
struct nupa_bell *nupa_bell_open(const struct nupa_fabric *fabric, const char *path, char *why,
				 size_t why_bytes);
void nupa_bell_close(struct nupa_bell *bell); /* NULL is none */
/* In a child after fork: the parent's is let go of. */
void nupa_bell_forget_in_child(struct nupa_fabric *fabric);
/* Reads the server's messages. */
void nupa_bell_hear(struct nupa_bell *bell);
/* number: as slot->doorbell has it.  False: its owner is unknown. */
bool nupa_bell_ring(struct nupa_bell *bell, uint32_t number);

/* Ours, as slot->doorbell has it; 0: none. */
uint32_t nupa_bell_number(const struct nupa_fabric *fabric);
/* Rings the owner of the slot if it sleeps, regardless of earlier rings. */
void nupa_bell_ring_slot(struct nupa_fabric *fabric, const struct nupa_slot *slot);

#endif
