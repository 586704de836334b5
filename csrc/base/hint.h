/* SPDX-License-Identifier: BSD-3-Clause
 * Hints on stderr. */
#ifndef NUPA_HINT_H
#define NUPA_HINT_H

/* Says once on stderr what the caller should do; silent with NUPA_QUIET=1. */
void nupa_hint(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same, once for each kind: an address that stands for it, where kinds share a format. */
void nupa_hint_of(const void *kind, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
