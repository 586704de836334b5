/* SPDX-License-Identifier: BSD-3-Clause
 * The board: figures and the last operations of this worker, in memory of the director's. */
#include "soak.h"

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct board *board;

uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

void board_log(enum log_kind kind, uint32_t end, uint64_t step, uint32_t opcode, uint32_t bytes,
	       uint32_t status)
{
	board->log[board->log_next % LOG_ENTRIES] = (struct log_entry){
		.ns = clock_ns(),
		.end = end,
		.step = (uint32_t)step,
		.bytes = bytes,
		.kind = (uint8_t)kind,
		.opcode = (uint8_t)opcode,
		.status = (uint8_t)status,
	};
	board->log_next++;
}

static void say(const char *what, const char *format, va_list arguments)
{
	char text[512];
	int bytes = vsnprintf(text, sizeof(text), format, arguments);

	(void)bytes;
	fprintf(stderr, "worker %d: %s: %s\n", (int)getpid(), what, text);
	fflush(stderr);
}

void wrong(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say("WRONG", format, arguments);
	va_end(arguments);
	board->wrong++;
	tell("wrong");
}

void give_up(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say("gives up", format, arguments);
	va_end(arguments);
	_exit(99);
}

void tell(const char *format, ...)
{
	va_list arguments;
	char text[512];
	int bytes;

	va_start(arguments, format);
	bytes = vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (send(STDIN_FILENO, text, (size_t)bytes, MSG_NOSIGNAL) != bytes)
		_exit(98); /* the director is gone */
}

static uint64_t open_fds(void)
{
	DIR *folder = opendir("/proc/self/fd");
	uint64_t n = 0;

	if (!folder)
		give_up("/proc/self/fd: %s", strerror(errno));
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

void measure(int slot)
{
	board->heap_bytes[slot] = mallinfo2().uordblks;
	board->fds[slot] = open_fds();
}

void must(bool good, const char *what)
{
	if (!good)
		give_up("%s: %s", what, strerror(errno));
}
