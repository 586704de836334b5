// SPDX-License-Identifier: BSD-3-Clause
/*
 * The reason why a step of a guest's start failed.
 */
#include "guest/init.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int guest_fails(struct guest *guest, const char *format, ...)
{
	int error = errno;
	va_list args;

	va_start(args, format);
	vsnprintf(guest->why, sizeof(guest->why), format, args);
	va_end(args);
	return error ? -error : -EIO;
}
