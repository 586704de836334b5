/* SPDX-License-Identifier: BSD-3-Clause
 * The limits of this process (getrlimit(2)). */
#ifndef NUPA_RLIMIT_H
#define NUPA_RLIMIT_H

#include <stdint.h>

/* After ENOMEM, where *bytes* more are needed: says once what RLIMIT_AS would be enough, if that is
 * the cause.  Keeps errno. */
void nupa_limit_address_space(uint64_t bytes);

#endif
