/* SPDX-License-Identifier: BSD-3-Clause
 * Memory that may be put into: see windows.h. */
#include "tests/trunk/windows.h"

#include <string.h>

struct window *window_open(struct windows *windows, void *memory, size_t bytes,
			   uint8_t key[NUPA_KEY_BYTES], uint32_t *key_bytes)
{
	struct window *window = NULL;

	pthread_mutex_lock(&windows->mutex);
	for (uint32_t i = 0; i < WINDOWS && !window; i++)
		if (!windows->each[i].memory) {
			window = &windows->each[i];
			*window = (struct window){ memory, bytes };
			memcpy(key, &i, *key_bytes = sizeof(i));
		}
	pthread_mutex_unlock(&windows->mutex);
	return window;
}

void window_close(struct windows *windows, struct window *window)
{
	pthread_mutex_lock(&windows->mutex);
	*window = (struct window){ 0 };
	pthread_mutex_unlock(&windows->mutex);
}

struct window *window_of(struct windows *windows, const uint8_t *key, uint32_t key_bytes)
{
	uint32_t at;

	memcpy(&at, key, sizeof(at));
	return key_bytes == sizeof(at) && at < WINDOWS ? &windows->each[at] : NULL;
}

void window_put(struct windows *windows, const struct window *window, const void *from, uint64_t to,
		uint32_t bytes)
{
	uint64_t offset;

	pthread_mutex_lock(&windows->mutex);
	offset = to - (uint64_t)(uintptr_t)window->memory;
	if (window->memory && offset <= window->bytes && bytes <= window->bytes - offset) {
		memcpy(window->memory + offset, from, bytes);
		windows->put_bytes += bytes;
	}
	pthread_mutex_unlock(&windows->mutex);
}

uint64_t window_bytes(struct windows *windows)
{
	uint64_t bytes;

	pthread_mutex_lock(&windows->mutex);
	bytes = windows->put_bytes;
	pthread_mutex_unlock(&windows->mutex);
	return bytes;
}
