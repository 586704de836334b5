// SPDX-License-Identifier: BSD-3-Clause
/*
 * Files of sysfs and procfs, as strings.
 */
#include "guest/init.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int open_path(int flags, const char *format, va_list args)
{
	char path[PATH_MAX];

	if (vsnprintf(path, sizeof(path), format, args) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	int fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int file_read(char *text, size_t bytes, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int fd = open_path(O_RDONLY, format, args);
	va_end(args);
	if (fd < 0)
		return fd;
	ssize_t got = read(fd, text, bytes - 1);
	int error = got < 0 ? -errno : 0;
	close(fd);
	if (error)
		return error;
	text[got] = '\0';
	text[strcspn(text, "\n")] = '\0';
	return 0;
}

int file_write(const char *text, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int fd = open_path(O_WRONLY, format, args);
	va_end(args);
	if (fd < 0)
		return fd;
	int error = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return error;
}
