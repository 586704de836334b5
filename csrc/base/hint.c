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

#define HINTS_MAX 128u /* kinds; those beyond are not said */

static bool is_first(const void *kind)
{
	static const void *said[HINTS_MAX];
	static uint32_t n_said;
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	bool first;

	pthread_mutex_lock(&mutex);
	first = n_said < HINTS_MAX;
	for (uint32_t i = 0; i < n_said; i++)
		first &= said[i] != kind;
	if (first)
		said[n_said++] = kind;
	pthread_mutex_unlock(&mutex);
	return first;
}

static void say(const void *kind, const char *format, va_list args)
{
	const char *quiet = getenv("NUPA_QUIET");
	char text[512];

	if (!is_first(kind) || (quiet && *quiet && strcmp(quiet, "0") != 0))
		return;
	vsnprintf(text, sizeof(text), format, args);
	fprintf(stderr, "nupa: %s\n", text);
}

void nupa_hint(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(format, format, args);
	va_end(args);
}

void nupa_hint_of(const void *kind, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(kind, format, args);
	va_end(args);
}
