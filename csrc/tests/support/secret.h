/* SPDX-License-Identifier: BSD-3-Clause
 * Memory that no other process may read.  It is filled with a number that no other process knows,
 * and found again wherever eight bytes of it turn up. */
#ifndef NUPA_TESTS_SECRET_H
#define NUPA_TESTS_SECRET_H

#include <stddef.h>
#include <stdint.h>

struct secret {
	uint8_t bytes[8];
};

/* No two of its rotations are equal. */
struct secret secret_of(uint64_t *random);
/* [at, +bytes), from a multiple of eight bytes on. */
void secret_fill(const struct secret *secret, uint8_t *at, size_t bytes);
/* Whether it is there still as it was filled: where it differs, or *bytes*. */
size_t secret_match(const struct secret *secret, const uint8_t *at, size_t bytes);
/* Where eight bytes of it are, from any of them on; or *bytes*: nowhere. */
size_t secret_find(const struct secret *secret, const uint8_t *at, size_t bytes);

#endif
