/* SPDX-License-Identifier: BSD-3-Clause
 * Events of a fabric: what changed, numbered, in a ring of the segment. */
#ifndef NUPA_CONTROL_EVENT_H
#define NUPA_CONTROL_EVENT_H

#include "segment/layout/control_layout.h"
#include "segment/segment.h"

#include <stdarg.h>

/* Posts an event; any process may, without the control lock.  Without memory for the table it does
 * nothing. */
__attribute__((format(printf, 5, 6))) void nupa_event_post(struct nupa_fabric *fabric,
							   enum nupa_severity severity,
							   const char *kind, const char *subject,
							   const char *format, ...);

/* cffi: begin */
/* The same with a text.  Returns its number, or a negative errno; -EINVAL: no such severity. */
int64_t nupa_event_add(struct nupa_fabric *fabric, uint32_t severity, const char *kind,
		       const char *subject, const char *text);
/* The number of the newest event; 0: there is none. */
uint64_t nupa_event_last(struct nupa_fabric *fabric);
/* How many events the ring keeps. */
uint32_t nupa_event_room(const struct nupa_fabric *fabric);
/* An event by its number.  -ENOENT: there is none yet; -EAGAIN: it is being written, or its writer
 * died; -ESTALE: a later one has its place. */
int nupa_event_get(struct nupa_fabric *fabric, uint64_t seq, struct nupa_control_event *out);
/* Waits until an event later than *after* was posted, or timeout_ms have passed.  0, or a negative
 * errno of nupa_control: there is no table and can be none. */
int nupa_event_await(struct nupa_fabric *fabric, uint64_t after, uint32_t timeout_ms);
/* cffi: end */

#endif
