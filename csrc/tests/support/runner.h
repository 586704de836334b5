/* SPDX-License-Identifier: BSD-3-Clause
 * Runs test cases, each in a process of its own.  A case starts without threads and may fork; one
 * that fails or hangs leaves the others alone. */
#ifndef NUPA_TESTS_RUNNER_H
#define NUPA_TESTS_RUNNER_H

#include "tests/check.h"

#include <stdint.h>

#define MS UINT64_C(1000000) /* in nanoseconds */

struct test_case {
	const char *name;
	void (*run)(void);
	struct test_case *next;
};

/* TEST(name) { ... } defines a case; the cases of a program run in the order of their file. */
#define TEST(function)                                                                             \
	static void function(void);                                                                \
	__attribute__((constructor)) static void add_##function(void)                              \
	{                                                                                          \
		static struct test_case test = { #function, function, NULL };                      \
                                                                                                   \
		test_add(&test);                                                                   \
	}                                                                                          \
	static void function(void)

void test_add(struct test_case *test);
/* Runs all cases, or those that argv names; returns the exit code.  A program that prepares nothing
 * has the main of main.c, which only calls this. */
int test_main(int argc, char **argv);

/* From NUPA_TEST_SEED, else from the clock; printed, so that a failure can be had again. */
uint64_t test_seed(void);
/* The next of a sequence (xorshift64*); *state is not 0. */
uint64_t test_random(uint64_t *state);
uint64_t test_now_ns(void);
/* How long a fuzz test runs: NUPA_FUZZ_SECONDS, by default *seconds*. */
uint64_t test_fuzz_ns(double seconds);

#endif
