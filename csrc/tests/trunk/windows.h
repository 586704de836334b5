/* SPDX-License-Identifier: BSD-3-Clause
 * Memory of this process that may be put into by a key: the windows of the carrier of tests. */
#ifndef NUPA_TESTS_TRUNK_WINDOWS_H
#define NUPA_TESTS_TRUNK_WINDOWS_H

#include "trunk/carrier.h"

#include <pthread.h>

#define WINDOWS 64u

/* Its key is its number. */
struct window {
	uint8_t *memory; /* NULL: not in use */
	size_t bytes;
};

struct windows {
	pthread_mutex_t mutex;
	struct window each[WINDOWS];
	uint64_t put_bytes;
};

/* NULL: all are in use. */
struct window *window_open(struct windows *windows, void *memory, size_t bytes,
			   uint8_t key[NUPA_KEY_BYTES], uint32_t *key_bytes);
void window_close(struct windows *windows, struct window *window);
/* NULL: no window has that key. */
struct window *window_of(struct windows *windows, const uint8_t *key, uint32_t key_bytes);
/* As an adapter does, it refuses what is not of the window. */
void window_put(struct windows *windows, const struct window *window, const void *from, uint64_t to,
		uint32_t bytes);
/* That were put so far. */
uint64_t window_bytes(struct windows *windows);

#endif
