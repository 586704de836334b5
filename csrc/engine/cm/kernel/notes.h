/* SPDX-License-Identifier: BSD-3-Clause
 * A kernel's notes of the connections that processes have with it.  They are made of the datagrams
 * that pass, and tell
 *
 *   - whether a number is a process's: numbers that another kernel of its host gave out look alike;
 *   - the datagrams by which the kernel's CM is told of a process's death (IBTA 12.9.6, 12.6.7).
 *
 * Notes are bounded; the oldest goes.  No lock. */
#ifndef NUPA_CM_NOTES_H
#define NUPA_CM_NOTES_H

#include "engine/cm/wire/mad.h"

#define NUPA_CM_NOTES_MAX 4096u

struct nupa_cm_notes;

struct nupa_cm_notes *nupa_cm_notes_new(void); /* NULL: no memory */
void nupa_cm_notes_free(struct nupa_cm_notes *notes);
/* A process of *slot* has said this to the kernel; the kernel has said it to such a one. */
void nupa_cm_notes_heard(struct nupa_cm_notes *notes, uint32_t slot, const struct nupa_cm_mad *mad);
void nupa_cm_notes_said(struct nupa_cm_notes *notes, uint32_t slot, const struct nupa_cm_mad *mad);
/* The slot of the process that gave out this number; 0: it is none. */
uint32_t nupa_cm_notes_slot(const struct nupa_cm_notes *notes, uint32_t number);
/* The process of *slot* has died: the next datagram that its kernel would have sent; false: no
 * more. */
bool nupa_cm_notes_orphan(struct nupa_cm_notes *notes, uint32_t slot,
			  uint8_t mad[NUPA_CM_MAD_BYTES]);

#endif
