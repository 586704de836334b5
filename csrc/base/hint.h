/* SPDX-License-Identifier: BSD-3-Clause
 * Hints on stderr. */
#ifndef NUPA_HINT_H
#define NUPA_HINT_H

/* Says once on stderr what the caller should do; silent with NUPA_QUIET=1. */
void nupa_hint(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
