/* SPDX-License-Identifier: BSD-3-Clause
 * Branch hints: the direction that a branch takes nearly always. */
#ifndef NUPA_LIKELY_H
#define NUPA_LIKELY_H

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#endif
