/* SPDX-License-Identifier: BSD-3-Clause
 * Registered memory that the program changes: ways to do so, and what they leave of it. */
#ifndef NUPA_TESTS_LOST_H
#define NUPA_TESTS_LOST_H

#include "tests/support/end.h"

enum way {
	WAY_MUNMAP,
	WAY_MREMAP,
	WAY_TRUNCATE, /* the file that is mapped there */
	WAY_PROT_NONE,
	WAY_PROT_READ,
	WAY_DONTNEED,
	WAY_NEW_MAPPING,
	N_WAYS
};

extern const char *const way_names[N_WAYS];

enum rest {
	REST_GONE,      /* there is nothing */
	REST_PROTECTED, /* the bytes are there; access faults */
	REST_REPLACED,  /* other bytes are there */
};

enum rest way_leaves(enum way way);

#define LOST_BYTES (128u << 10)

struct lost {
	enum way way;
	uint8_t *at;
	uint8_t *moved; /* by mremap; NULL: not */
	bool unmapped;
	struct ibv_mr *mr;
	int fd; /* of the file; -1: none */
};

/* Registers LOST_BYTES of pattern *seed* with all access at that end.  At one time one of each
 * *place*, 0 or 1, may be open. */
void lost_open(struct lost *lost, struct end *end, unsigned int place, enum way way, uint32_t seed);
void lost_lose(struct lost *lost);
/* Makes what is left of it readable and writable. */
void lost_unprotect(struct lost *lost);
void lost_close(struct lost *lost);

/* From now on a signal of a fault that reaches the program ends the test. */
void lost_expect_no_signals(void);

#endif
