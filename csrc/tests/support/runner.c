/* SPDX-License-Identifier: BSD-3-Clause
 * The runner of the C tests: see runner.h. */
#define _GNU_SOURCE
#include "tests/support/runner.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CASE_LIMIT_S 60 /* SIGALRM ends a case that hangs */

static struct test_case *cases, **last = &cases;

void test_add(struct test_case *test)
{
	*last = test;
	last = &test->next;
}

uint64_t test_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t test_fuzz_ns(double seconds)
{
	const char *text = getenv("NUPA_FUZZ_SECONDS");

	return (uint64_t)((text ? strtod(text, NULL) : seconds) * 1e9);
}

uint64_t test_seed(void)
{
	const char *text = getenv("NUPA_TEST_SEED");
	uint64_t seed = text ? strtoull(text, NULL, 0) : test_now_ns();

	seed += seed == 0;
	printf("  NUPA_TEST_SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	return seed;
}

uint64_t test_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(0x2545f4914f6cdd1d);
}

/* An emulated machine may be slower by this factor. */
static unsigned int slower(void)
{
	const char *text = getenv("NUPA_TEST_SLOWER");

	return text ? (unsigned int)atoi(text) : 1;
}

/* NUPA_TEST_SKIPS is a file with a line for each case that cannot run here.  The line has its name,
 * or that of the program, and the reason, which is printed. */
static bool is_skipped(const char *name)
{
	const char *path = getenv("NUPA_TEST_SKIPS");
	FILE *file = path ? fopen(path, "re") : NULL;
	char line[256], skipped[128];
	bool found = false;
	int at;

	CHECK(file || !path);
	while (file && !found && fgets(line, sizeof(line), file)) {
		at = 0;
		found = sscanf(line, "%127s %n", skipped, &at) == 1 &&
			(!strcmp(skipped, name) || !strcmp(skipped, program_invocation_short_name));
		if (found)
			printf("skip          %s: %s", name, line + at);
	}
	if (file)
		fclose(file);
	return found;
}

static bool run_case(const struct test_case *test)
{
	uint64_t start_ns = test_now_ns();
	int status = 0;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		alarm(CASE_LIMIT_S * slower());
		test->run();
		exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	printf("%s %6.2f s  %s\n", status ? "FAIL" : "ok  ",
	       (double)(test_now_ns() - start_ns) / 1e9, test->name);
	if (WIFSIGNALED(status))
		printf("     ended by signal %d (%s)\n", WTERMSIG(status),
		       strsignal(WTERMSIG(status)));
	return status == 0;
}

static bool is_named(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strstr(name, argv[i]))
			return true;
	return argc < 2;
}

int test_main(int argc, char **argv)
{
	unsigned int failed = 0, ran = 0;

	for (const struct test_case *test = cases; test; test = test->next) {
		if (!is_named(test->name, argc, argv))
			continue;
		ran++;
		if (is_skipped(test->name))
			continue;
		failed += !run_case(test);
	}
	printf("%u of %u failed\n", failed, ran);
	return failed != 0 || ran == 0;
}
