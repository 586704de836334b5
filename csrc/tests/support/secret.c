/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/support/secret.h"
#include "tests/support/runner.h"

#include <string.h>

struct secret secret_of(uint64_t *random)
{
	uint64_t number = test_random(random);
	struct secret secret;

	memcpy(secret.bytes, &number, sizeof(number));
	/* One byte stands in it once, so a rotation is found by it. */
	for (int i = 1; i < 8; i++)
		if (secret.bytes[i] == secret.bytes[0])
			secret.bytes[i] ^= 1;
	return secret;
}

void secret_fill(const struct secret *secret, uint8_t *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		at[i] = secret->bytes[i % 8];
}

size_t secret_match(const struct secret *secret, const uint8_t *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (at[i] != secret->bytes[i % 8])
			return i;
	return bytes;
}

size_t secret_find(const struct secret *secret, const uint8_t *at, size_t bytes)
{
	for (size_t from = 0; from + 8 <= bytes; from++) {
		const uint8_t *first = memchr(at + from, secret->bytes[0], 8);
		size_t turn = first ? (size_t)(first - (at + from)) : 0;
		size_t i = 0;

		while (first && i < 8 && at[from + i] == secret->bytes[(i + 8 - turn) % 8])
			i++;
		if (i == 8)
			return from;
	}
	return bytes;
}
