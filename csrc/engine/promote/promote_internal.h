/* SPDX-License-Identifier: BSD-3-Clause
 * Between the files of promotion.  Downwards:
 *
 *   promote.c        regions: which of their pages are promoted, and which ranges that makes
 *   promote_left.c   slots that stay promoted, as they may be pinned
 *   promote_copies.c and what a forked child has of them
 *   promote_slots.c  where promoted pages are in the memfd
 *   promote_keep.c   memory to leave alone
 *   promote_swap.c   how a mapping is replaced under running threads
 *   promote_hold.c   how their writes are held off meanwhile
 *   promote_pins.c   whether the kernel may have pinned memory
 *   promote_memfd.c  the memfd
 *   promote_maps.c   what the kernel says of the program's memory
 *
 * All of it is under the lock of promote.c. */
#ifndef NUPA_PROMOTE_INTERNAL_H
#define NUPA_PROMOTE_INTERNAL_H

#include "base/list.h"
#include "engine/promote/promote.h"

#include <signal.h>
#include <sys/types.h>

/* Variables that are used while pages are replaced.  A promotion of their own page would wait for
 * itself.  So they lie in .data, which is mapped from a file and therefore not promoted.  In a
 * program that contains the engine .bss is one with the program's. */
#define NUPA_NOT_PROMOTED __attribute__((section(".data")))

/* --- promote_maps.c ------------------------------------------------------------------ */

/* A mapping, as proc_pid_maps(5) has it. */
struct nupa_vma {
	uint64_t start, end;
	uint64_t offset, inode; /* of the file; inode 0: none */
	dev_t device;
	int prot;
	bool shared;
	bool stack; /* of the main thread */
};

struct nupa_maps {
	int fd;
	char *text; /* NULL: the kernel answers single questions */
	size_t at, text_bytes;
};

uint64_t nupa_page_bytes(void);
int nupa_maps_open(struct nupa_maps *maps);
void nupa_maps_close(struct nupa_maps *maps);
/* The first mapping that ends behind *address*; addresses only ascend. */
bool nupa_maps_find(struct nupa_maps *maps, uint64_t address, struct nupa_vma *vma);
/* The same, of shared mappings of files alone, with its name; "" if it is longer. */
bool nupa_maps_find_shared(struct nupa_maps *maps, uint64_t address, struct nupa_vma *vma,
			   char *name, uint32_t name_max);

/* --- promote_pins.c ------------------------------------------------------------------ */

/* Whether no page of this process is pinned for longer than a system call, as far as its open files
 * tell.  For as long as writers are held off; else for a moment. */
bool nupa_pins_excluded(void);

/* --- promote_hold.c ------------------------------------------------------------------ */

#define NUPA_PIECE_PAGES 256u

struct nupa_hold {
	uint64_t va, bytes;
	sigset_t signals;
};

bool nupa_hold_possible(void);
void nupa_hold_forget_in_child(void);
/* Whether all writers can be held off, not only what user code writes. */
bool nupa_hold_is_total(void);
/* The most to hold off at once, at most NUPA_PIECE_PAGES. */
uint64_t nupa_hold_max_bytes(void);
/* From here on no thread writes to [va, +bytes), nor, with *first_touch*, touches a page of it that
 * was never touched.  The caller must not either. */
bool nupa_hold_begin(struct nupa_hold *hold, uint64_t va, uint64_t bytes, bool first_touch);
/* Whether nupa_hold_take works (Linux 6.8). */
bool nupa_hold_can_take(void);
/* Moves the pages of the piece, which is held with *first_touch*, to *at*.  The caller alone sees
 * them there; readers of the piece wait.  0: none of them was pinned, and none can be any more.
 * EBUSY: one is pinned, or shared with another process since a fork.  EAGAIN: or part of a huge
 * page that is.  EEXIST: try again.  After these and any other errno none was moved. */
int nupa_hold_take(const struct nupa_hold *hold, uint64_t *at);
void nupa_hold_put_back(const struct nupa_hold *hold);
/* Frees them. */
void nupa_hold_drop_taken(const struct nupa_hold *hold);
/* *replaced*: there is another mapping at va now. */
void nupa_hold_end(struct nupa_hold *hold, bool replaced);

/* --- promote_swap.c ------------------------------------------------------------------ */

/* [va, +bytes), private anonymous, readable and writable, becomes [offset, +bytes) of the memfd.
 * The mapping that was there goes to [park, +bytes), which is the caller's, without its pages.
 * Returns how many bytes have, from the front: pages that may be pinned stay as they are.  With
 * *readers_may_fail* the hold is not total, and other threads run.  Their system calls fail while
 * pages are taken, which shall be short. */
uint64_t nupa_swap_in(int memfd, uint64_t va, uint64_t bytes, uint64_t offset, uint64_t park,
		      bool readers_may_fail);
/* Copies [offset, +bytes) of the memfd to memory that is zero. */
bool nupa_swap_copy(int memfd, uint64_t to, uint64_t bytes, uint64_t offset);
/* And back again, with these rights, to a mapping that is at *park*, which stays there empty: what
 * merged with its neighbours before, does again. */
uint64_t nupa_swap_out(int memfd, uint64_t va, uint64_t bytes, uint64_t offset, int prot,
		       uint64_t park);

/* --- promote_keep.c ------------------------------------------------------------------ */

/* Memory to leave alone: threads' stacks (signal frames) and control blocks (rseq, tid), which the
 * kernel writes at any time, and memory that we write. */
struct nupa_keep_out {
	uint64_t from, to;
};
/* All of it, now, in no order: how many, or -errno. */
int nupa_keep_outs(struct nupa_keep_out *keep_outs, int n_max);

/* --- promote_memfd.c ----------------------------------------------------------------- */

#define NUPA_MEMFD_BYTES (UINT64_C(1) << 62)

/* Makes the memfd if there was none. */
bool nupa_memfd_ready(void);
/* Programs close descriptors that they did not open; the number may be another file's by now. */
bool nupa_memfd_is_there(void);
int nupa_memfd(void);
bool nupa_vma_is_memfd(const struct nupa_vma *vma);
/* Frees its pages there. */
bool nupa_memfd_punch(uint64_t offset, uint64_t bytes);
void nupa_memfd_forget_in_child(void);

/* A preloaded library that changes the program's memory knows our memfds by a table of this name:
 * struct nupa_promoted_file[NUPA_PROMOTED_FILES], one for all copies of the engine. */
#define NUPA_PROMOTED_TABLE "nupa_shim_promoted"
#define NUPA_PROMOTED_FILES 4u

struct nupa_promoted_file {
	dev_t device;
	uint64_t inode;
};

/* --- promote_slots.c ----------------------------------------------------------------- */

/* A slot of the memfd. */
struct nupa_promoted {
	uint64_t anchor;   /* va of the page in its middle */
	uint64_t from, to; /* its pages lie between */
	uint32_t ranges;   /* that were handed out */
	uint32_t runs;     /* index + 1 of its first */
	bool used;         /* has or may have pages */
	bool left;         /* in the list of those that no range has, and that may be pinned */
	struct nupa_list link;
};

/* One for pages at and around *anchor*; NULL: all are taken. */
struct nupa_promoted *nupa_promoted_take(uint64_t anchor);
struct nupa_promoted *nupa_promoted_of(uint64_t file_off);
/* The offset of the page at va in the memfd. */
uint64_t nupa_promoted_place(const struct nupa_promoted *slot, uint64_t va);
/* Promotes [va, +bytes); false: not all of it. */
bool nupa_promoted_add(struct nupa_promoted *slot, uint64_t va, uint64_t bytes,
		       bool readers_may_fail);
/* Makes its mapped pages private again, then frees it.  False: pages that may be pinned stay. */
bool nupa_promoted_empty(struct nupa_promoted *slot);
/* The same for all of them, regardless of the owner. */
bool nupa_promoted_empty_all(void);
/* Whether there is one to empty. */
bool nupa_promoted_any(void);
/* Frees one of which nothing is mapped. */
bool nupa_promoted_free(struct nupa_promoted *slot);
/* It waits no longer. */
void nupa_promoted_unleave(struct nupa_promoted *slot);
void nupa_promoted_forget_in_child(void);

/* --- promote_left.c ------------------------------------------------------------------ */

/* Of a slot that no range has: it is emptied later, by nupa_promoted_retry. */
void nupa_promoted_leave(struct nupa_promoted *slot);
/* A range of it is handed out. */
void nupa_promoted_use(struct nupa_promoted *slot);
/* Whether any waits to be emptied. */
bool nupa_promoted_left(void);
/* Empties them if nothing is pinned, else frees what the program has unmapped of them. */
void nupa_promoted_retry(bool unpinned);
/* Whether each mapped page of it is at its own place.  Then no page can be at the place of an
 * unmapped one. */
bool nupa_promoted_is_straight(const struct nupa_promoted *slot);
void nupa_promoted_forget_left_in_child(void);

/* --- promote_copies.c ---------------------------------------------------------------- */

/* Before a fork: a copy of all that is promoted still. */
void nupa_copies_make(void);
void nupa_copies_drop(void);
/* Puts them in the place of the parent's memory. */
void nupa_copies_take_in_child(void);

#endif
