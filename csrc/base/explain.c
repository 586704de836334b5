/* SPDX-License-Identifier: BSD-3-Clause
 * The words of an error: explain.h. */
#include "base/explain.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int nupa_explain(int error, char *why, size_t why_bytes, const char *format, ...)
{
	va_list arguments;

	if (!why || !why_bytes)
		return error;
	va_start(arguments, format);
	vsnprintf(why, why_bytes, format, arguments);
	va_end(arguments);
	return error;
}

const char *nupa_remedy(int error)
{
	switch (error) {
	case EMFILE:
		return "; raise `ulimit -n`";
	case ENFILE:
		return "; raise sysctl fs.file-max";
	case EFBIG:
		return "; raise `ulimit -f`";
	case EPERM:
	case ENOSYS:
		return "; allow it in the seccomp profile";
	default:
		return "";
	}
}
