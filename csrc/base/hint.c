/* SPDX-License-Identifier: BSD-3-Clause
 * One line on stderr for a cause that errno cannot express; the same line only once. */
#include "base/hint.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HINTS_MAX 32

void nupa_hint(const char *format, ...)
{
	static const char *said[HINTS_MAX];
	static uint32_t n_said;
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	const char *quiet = getenv("NUPA_QUIET");
	char text[512];
	va_list args;
	bool again = false;

	pthread_mutex_lock(&mutex);
	for (uint32_t i = 0; i < n_said; i++)
		again |= said[i] == format;
	if (!again && n_said < HINTS_MAX)
		said[n_said++] = format;
	pthread_mutex_unlock(&mutex);
	if (again || (quiet && *quiet && strcmp(quiet, "0") != 0))
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "nupa: %s\n", text);
}
