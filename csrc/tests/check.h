/* SPDX-License-Identifier: BSD-3-Clause
 * Assertions of the C tests: a false one says where, what, and the values, and ends the process. */
#ifndef NUPA_TESTS_CHECK_H
#define NUPA_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s: false: %s\n", __FILE__, __LINE__, __func__,    \
				#condition);                                                       \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* Two integers, compared as signed 64 bits. */
#define CHECK_EQ(found, wanted)                                                                    \
	do {                                                                                       \
		long long check_found = (long long)(found), check_wanted = (long long)(wanted);    \
                                                                                                   \
		if (check_found != check_wanted) {                                                 \
			fprintf(stderr, "%s:%d: %s: %s is %lld (0x%llx), wanted %lld (0x%llx)\n",  \
				__FILE__, __LINE__, __func__, #found, check_found,                 \
				(unsigned long long)check_found, check_wanted,                     \
				(unsigned long long)check_wanted);                                 \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* The child is waited for, and has exited with 0. */
#define CHECK_CHILD(child)                                                                         \
	do {                                                                                       \
		const pid_t check_pid = (child);                                                   \
		int check_status = 0;                                                              \
                                                                                                   \
		CHECK_EQ(waitpid(check_pid, &check_status, 0), check_pid);                         \
		CHECK_EQ(check_status, 0);                                                         \
	} while (0)

#endif
