/* SPDX-License-Identifier: BSD-3-Clause
 * The words of an error. */
#ifndef NUPA_EXPLAIN_H
#define NUPA_EXPLAIN_H

#include <stddef.h>

/* Fills *why* like snprintf and returns *error*, so that a check is one statement. */
__attribute__((format(printf, 4, 5))) int nupa_explain(int error, char *why, size_t why_bytes,
						       const char *format, ...);

/* The user's remedy for a system call's errno, to follow its text: "; raise ..." or "". */
const char *nupa_remedy(int error);

#endif
