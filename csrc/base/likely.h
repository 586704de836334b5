/* SPDX-License-Identifier: BSD-3-Clause
 * Which way a branch goes nearly always. */
#ifndef NUPA_LIKELY_H
#define NUPA_LIKELY_H

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#endif
