/* SPDX-License-Identifier: BSD-3-Clause
 * The limits of this process (getrlimit(2)). */
#ifndef NUPA_RLIMIT_H
#define NUPA_RLIMIT_H

#include <stdbool.h>
#include <stdint.h>

/* After ENOMEM, where *bytes* more are needed: says once what RLIMIT_AS would be enough, if that is
 * the cause.  Keeps errno. */
void nupa_limit_address_space(uint64_t bytes);
/* Whether RLIMIT_FSIZE lets a file have *bytes*; else errno is EFBIG.  Beyond it, write(2) and
 * ftruncate(2) end the program by a signal. */
bool nupa_limit_allows_file(uint64_t bytes);

#endif
