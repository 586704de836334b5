/* SPDX-License-Identifier: BSD-3-Clause
 * The rest of a copy that faulted (guard.h): as much of it as hardware with pinned pages would do.
 * Protected memory is reached nevertheless.  Data for memory that is gone is dropped.  The contents
 * of memory that is gone are lost. */
#ifndef NUPA_REACH_H
#define NUPA_REACH_H

#include "base/guard.h"

#include <sys/types.h>

enum nupa_reach {
	NUPA_REACH_DONE,
	NUPA_REACH_NO_SOURCE, /* a byte is gone */
	NUPA_REACH_NO_TARGET, /* it is there, and cannot be written */
};

/* Between two processes, 0 for this one; in pieces, ascending, with the last byte last. */
enum nupa_reach nupa_reach_copy(pid_t to_pid, uint64_t to, pid_t from_pid, uint64_t from,
				uint64_t bytes);

/* Whether all of it can be read somehow. */
bool nupa_reach_is_there(const void *at, uint64_t bytes);

/* Whether others copy to and from registered memory of this attachment by themselves; false: all
 * reach it by messages. */
bool nupa_reach_from_outside(void);

static inline enum nupa_reach nupa_reach_here(void *to, const void *from, uint64_t bytes)
{
	return nupa_reach_copy(0, (uintptr_t)to, 0, (uintptr_t)from, bytes);
}

static inline enum nupa_reach nupa_copy(void *to, const void *from, uint64_t bytes)
{
	if (__builtin_expect(nupa_guard_copy(to, from, bytes), 1))
		return NUPA_REACH_DONE;
	return nupa_reach_here(to, from, bytes);
}

/* The same with the last byte last. */
static inline enum nupa_reach nupa_copy_in_order(void *to, const void *from, uint64_t bytes)
{
	if (__builtin_expect(nupa_guard_write(to, from, bytes), 1))
		return NUPA_REACH_DONE;
	return nupa_reach_here(to, from, bytes);
}

/* A piece of local memory, checked. */
struct nupa_span {
	uint8_t *va;
	size_t bytes;
};

/* Copies bytes between a flat buffer and a list of spans, from offset of the list on; what does not
 * fit is left out. */
static inline enum nupa_reach nupa_spans_copy(const struct nupa_span *spans, uint32_t n_spans,
					      uint64_t offset, void *flat, uint64_t bytes,
					      bool to_spans)
{
	enum nupa_reach result = NUPA_REACH_DONE;
	uint8_t *at = flat;

	for (uint32_t i = 0; i < n_spans && bytes && result == NUPA_REACH_DONE; i++) {
		uint64_t n = spans[i].bytes;

		if (offset >= n) {
			offset -= n;
			continue;
		}
		n -= offset;
		n = n < bytes ? n : bytes;
		result = to_spans ? nupa_copy(spans[i].va + offset, at, n)
				  : nupa_copy(at, spans[i].va + offset, n);
		offset = 0;
		at += n;
		bytes -= n;
	}
	return result;
}

#endif
