/* SPDX-License-Identifier: BSD-3-Clause
 * The records of all attachments, in order of time. */
#ifndef NUPA_CAPTURE_RINGS_H
#define NUPA_CAPTURE_RINGS_H

#include "capture/expand/expand.h"

int nupa_rings_open(struct nupa_watch *watch);
void nupa_rings_close(struct nupa_watch *watch);
/* Copies new records; moves the horizon. */
void nupa_rings_gather(struct nupa_watch *watch);
/* The earliest record not younger than the horizon; its reader is watch->current.  NULL: none. */
const struct nupa_trace_record *nupa_rings_next(struct nupa_watch *watch);
/* Advances behind it. */
void nupa_rings_pass(struct nupa_watch *watch);

#endif
