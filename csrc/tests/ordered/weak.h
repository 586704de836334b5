/* SPDX-License-Identifier: BSD-3-Clause
 * Loads out of order, as a weakly ordered machine may do them.  They show a missing acquire on any
 * machine.  Neither QEMU nor TSan does (TSan knows no fences, and runs in order).
 *
 * The code under test is compiled with -fsanitize=thread and without its runtime: each load, store
 * and fence of it calls weak.c.  A test says what a piece of memory holds at each step of a
 * timeline.  Each load of the code takes place at some step: no earlier than
 *
 *   - an earlier acquire load,
 *   - an earlier load of any kind that an acquire fence stands between,
 *   - an earlier load of the same eight bytes (coherence),
 *
 * and otherwise whenever it likes.  weak_next goes through all such executions.  This is the ARMv8
 * model (multi-copy atomic) of a reader whose loads have no address dependencies. */
#ifndef NUPA_TESTS_WEAK_H
#define NUPA_TESTS_WEAK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEAK_STEPS_MAX 8u

/* [at, +bytes), 8-aligned, holds steps[i] (of as many bytes) at step i.  The code's stores there
 * are lost. */
void weak_begin(void *at, size_t bytes, const void *const *steps, uint32_t n_steps);
/* Before each execution; false: all have been. */
bool weak_next(void);
void weak_end(void);

/* A load that the compiler's pass does not see, about to happen. */
void weak_load_plain(const void *at, size_t bytes);

/* A writer's store: for checks of its side. */
struct weak_store {
	const void *at;
	size_t bytes;
	bool release;
};
/* Records stores to [at, +bytes) until weak_end; returns where, with *n. */
const struct weak_store *weak_record(void *at, size_t bytes, const uint32_t **n);

#endif
