/* SPDX-License-Identifier: BSD-3-Clause
 * Promotion: private memory of the program becomes a mapping of this process's memfd, at the same
 * address and while it is in use.  Peers that map the memfd reach it by load and store.
 *
 *   I1  The program's view of its memory does not change: no store is lost, and memory whose
 *       promotion would be noticed stays private.
 *   I2  A page is promoted as long as a range that was handed out has it; then it is private again,
 *       unless the kernel may have pinned it.
 *   I3  Two pages that are mapped at once never have the same place in the memfd.
 *   I4  No page is replaced that the kernel may have pinned: it would continue to store to the
 *       old page. */
#ifndef NUPA_PROMOTE_H
#define NUPA_PROMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whole pages at va that are [file_off, +bytes) of the memfd. */
struct nupa_shared_range {
	uint64_t va, bytes, file_off;
};

/* Whether this process may promote at all: the kernel lets us hold off writers, and NUPA_PROMOTE is
 * not 0. */
bool nupa_promote_possible(void);

/* Whether it goes unnoticed at any time: system calls of other threads that write to the memory
 * wait, too, and do not fail. */
bool nupa_promote_unnoticed(void);

/* Promotes all it can of the pages that overlap [addr, +bytes).  Fills in up to n_max maximal runs
 * of them that are promoted now, ascending, and returns their number.  The caller gives each
 * back to nupa_promote_release.  -EINVAL: addr + bytes is beyond the address space. */
int nupa_promote(void *addr, size_t bytes, struct nupa_shared_range *out, int n_max);

/* The same without promoting any: what of it is promoted already. */
int nupa_promote_find(void *addr, size_t bytes, struct nupa_shared_range *out, int n_max);

/* No peer uses these ranges any more; memory that is in no other range becomes private again.
 * Memory that may be pinned stays promoted; later calls of this and of nupa_promote try again. */
void nupa_promote_release(const struct nupa_shared_range *ranges, int n);

/* Threads of our own have started, or are about to end: they repeat writes by system calls.  If the
 * program has other threads, an ordinary user promotes only pages that lie in a region entirely.
 * Otherwise a system call that writes to the rest of the page might fail. */
void nupa_promote_count_own_threads(int more);

/* The memfd, which peers open as /proc/PID/fd/FD; -1: nothing was promoted yet. */
int nupa_promote_fd(void);

/* Around a fork.  Before it all memory becomes private, except memory that may be pinned: the child
 * gets a copy of that.  None is promoted until after the fork.  Ranges that were handed out are
 * void then, but still have to be released. */
void nupa_promote_before_fork(void);
void nupa_promote_after_fork(void);
void nupa_promote_forget_in_child(void);

#endif
