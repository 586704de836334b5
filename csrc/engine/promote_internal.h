/* SPDX-License-Identifier: BSD-3-Clause
 * Between the files of promotion: promote.c (what is promoted and where it is), promote_maps.c (what
 * the kernel says of the program's memory), promote_swap.c (how a mapping is replaced). */
#ifndef NUPA_PROMOTE_INTERNAL_H
#define NUPA_PROMOTE_INTERNAL_H

#include "promote.h"

#include <sys/types.h>

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

int nupa_maps_open(struct nupa_maps *maps);
void nupa_maps_close(struct nupa_maps *maps);
/* The first mapping that ends behind *address*; addresses only ascend. */
bool nupa_maps_find(struct nupa_maps *maps, uint64_t address, struct nupa_vma *vma);

/* Memory to leave alone: what the kernel itself writes at any time on behalf of threads, their
 * stacks (signal frames) and control blocks (rseq, tid), and what we write. */
struct nupa_keep_out {
	uint64_t from, to;
};
/* All of it, now, in no order: how many, or -errno. */
int nupa_keep_outs(struct nupa_keep_out *keep_outs, int n_max);

/* --- promote_swap.c ------------------------------------------------------------------ */

/* Whether writers can be held off; opens what is needed for it. */
bool nupa_swap_possible(void);
void nupa_swap_forget_in_child(void);
/* What is written while writers are held off. */
struct nupa_keep_out nupa_swap_scratch(void);
/* [va, +bytes), private anonymous, readable and writable, becomes [offset, +bytes) of the memfd.  The
 * mapping that was there goes to [park, +bytes), which is the caller's, without its pages.  Returns
 * how many bytes have, from the front. */
uint64_t nupa_swap_in(int memfd, uint64_t va, uint64_t bytes, uint64_t offset, uint64_t park);
/* And back again, with these rights, to a mapping that is at *park*, which stays there empty: what
 * merged with its neighbours before, does again. */
uint64_t nupa_swap_out(int memfd, uint64_t va, uint64_t bytes, uint64_t offset, int prot,
		       uint64_t park);

uint64_t nupa_page_bytes(void);

#endif
