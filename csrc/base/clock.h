/* SPDX-License-Identifier: BSD-3-Clause
 * The clock that all processes of a machine share: CLOCK_MONOTONIC. */
#ifndef NUPA_CLOCK_H
#define NUPA_CLOCK_H

#include <stdint.h>

uint64_t nupa_clock_ns(void);

#endif
