/* SPDX-License-Identifier: BSD-3-Clause
 * Copies that survive a fault, alone; and what becomes of the program's own faults, whichever
 * handlers it has and whenever it sets them. */
#define _GNU_SOURCE
/* Also the moves that this processor would not choose. */
#include "base/guard_copy.c" /* NOLINT(bugprone-suspicious-include) */

#include "tests/support/runner.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096u

/* *pages* pages, and behind them one that is not there. */
static uint8_t *map_with_end(size_t pages)
{
	uint8_t *at = mmap(NULL, (pages + 1) * PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	CHECK_EQ(mprotect(at + pages * PAGE, PAGE, PROT_NONE), 0);
	return at;
}

/* --- copies -------------------------------------------------------------------------- */

typedef bool (*copy_function)(void *, const void *, size_t);

static bool copy(void *to, const void *from, size_t bytes)
{
	return nupa_guard_copy(to, from, bytes);
}

static bool write_in_order(void *to, const void *from, size_t bytes)
{
	return nupa_guard_write(to, from, bytes);
}

#define MOST 7000u
#define PAGES 2u

static void check_copies(copy_function function, size_t least)
{
	uint8_t *from = map_with_end(PAGES), *to = map_with_end(PAGES);
	uint8_t *from_end = from + PAGES * PAGE, *to_end = to + PAGES * PAGE;

	for (size_t i = 0; i < PAGES * PAGE; i++)
		from[i] = (uint8_t)(i * 7 + i / 256);
	for (size_t bytes = least; bytes <= MOST; bytes += bytes < 300 ? 1 : 1 + bytes / 12) {
		for (size_t skew = 0; skew < 40; skew += 3) {
			memset(to, 0xee, PAGES * PAGE);
			CHECK(function(to_end - bytes - skew, from_end - bytes, bytes));
			CHECK_EQ(memcmp(to_end - bytes - skew, from_end - bytes, bytes), 0);
			CHECK_EQ(to_end[-(ptrdiff_t)(bytes + skew) - 1], 0xee);
			if (skew)
				CHECK_EQ(to_end[-(ptrdiff_t)skew], 0xee);
		}
		for (size_t short_by = 1; short_by <= bytes; short_by += 1 + bytes / 9) {
			CHECK(!function(to, from_end - bytes + short_by, bytes));
			CHECK(!function(to_end - bytes + short_by, from, bytes));
		}
	}
}

TEST(copies_are_whole_or_say_so)
{
	nupa_guard_install();
	check_copies(copy, 0);
	check_copies(write_in_order, 0);
	check_copies(nupa_guard_copy_long, 33);
#if defined(__x86_64__)
	check_copies(copy_by_16, 33);
	if (__builtin_cpu_supports("avx2"))
		check_copies(copy_by_32, 33);
#endif
}

TEST(atomics_are_executed_or_say_so)
{
	uint8_t *at = map_with_end(1);
	uint64_t *there = (uint64_t *)(void *)at, *gone = (uint64_t *)(void *)(at + PAGE);
	uint64_t value = 5;

	nupa_guard_install();
	CHECK(nupa_guard_store(there, 41));
	CHECK(nupa_guard_add(there, 1, &value));
	CHECK_EQ(value, 41);
	CHECK(nupa_guard_cas(there, &value, 7));
	CHECK_EQ(value, 42);
	CHECK(nupa_guard_cas(there, &value, 7));
	CHECK_EQ(*there, 7);
	CHECK(!nupa_guard_store(gone, 1));
	CHECK(!nupa_guard_add(gone, 1, &value));
	CHECK(!nupa_guard_cas(gone, &value, 1));
	CHECK_EQ(mprotect(at, PAGE, PROT_READ), 0);
	CHECK(!nupa_guard_cas(there, &value, 1)); /* though it has another value */
}

/* --- handlers ------------------------------------------------------------------------ */

static volatile uint8_t *nowhere;
static sigjmp_buf back;
static volatile int calls;
static void *volatile seen;
static struct sigaction previous;

/* A guarded copy from and to what is not there. */
static void check_guarded(void)
{
	uint8_t bytes[100] = { 0 };

	CHECK(!nupa_guard_copy(bytes, (const void *)nowhere, 8));
	CHECK(!nupa_guard_copy((void *)nowhere, bytes, sizeof(bytes)));
}

static void map_nowhere(void)
{
	nowhere = map_with_end(0);
	CHECK(signal(SIGSEGV, SIG_DFL) != SIG_ERR); /* a sanitizer has a handler */
}

static void jump_back(int signal_number, siginfo_t *info, void *context)
{
	(void)signal_number;
	(void)context;
	calls++;
	seen = info->si_addr;
	siglongjmp(back, 1);
}

/* As many libraries do: what is not for them is for the one before. */
static void call_previous(int signal_number, siginfo_t *info, void *context)
{
	if (++calls > 3)
		_exit(3);
	if (previous.sa_flags & SA_SIGINFO)
		previous.sa_sigaction(signal_number, info, context);
	else
		sigaction(signal_number, &previous, NULL);
}

/* As faulthandler does. */
static void raise_again(int signal_number)
{
	if (++calls > 1)
		_exit(3);
	sigaction(signal_number, &previous, NULL);
	raise(signal_number);
}

static void set_function(void (*function)(int, siginfo_t *, void *), int flags)
{
	struct sigaction action = { .sa_sigaction = function, .sa_flags = SA_SIGINFO | flags };

	CHECK_EQ(sigaction(SIGSEGV, &action, &previous), 0);
}

/* A fault of the program's own, and where its handler saw it. */
static void fault(void)
{
	seen = NULL;
	if (!sigsetjmp(back, 1))
		nowhere[24] = 1;
	CHECK(seen == (void *)(uintptr_t)(nowhere + 24));
}

TEST(a_handler_that_was_there_has_the_faults_of_the_program)
{
	map_nowhere();
	set_function(jump_back, 0);
	nupa_guard_install();
	for (int i = 1; i <= 3; i++) {
		check_guarded();
		fault();
		CHECK_EQ(calls, i);
	}
}

TEST(a_handler_that_comes_later_has_them_too)
{
	map_nowhere();
	nupa_guard_install();
	set_function(jump_back, 0);
	nupa_guard_renew();
	for (int i = 1; i <= 3; i++) {
		check_guarded();
		fault();
		CHECK_EQ(calls, i);
		nupa_guard_renew();
	}
}

/* Returns the wait status of a child that does this. */
static int status_of(void (*function)(void))
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		function();
		_exit(2);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	return status;
}

static void expect_end_by(void (*function)(void), int signal_number)
{
	int status = status_of(function);

	CHECK(WIFSIGNALED(status));
	CHECK_EQ(WTERMSIG(status), signal_number);
}

static void crash(void)
{
	nowhere[8] = 1;
}

static void crash_on_chain(void)
{
	set_function(call_previous, 0);
	nupa_guard_renew();
	check_guarded();
	nowhere[8] = 1;
}

__attribute__((unused)) static void crash_on_raise(void)
{
	struct sigaction action = { .sa_handler = raise_again,
				    .sa_flags = (int)SA_NODEFER | SA_ONSTACK };

	CHECK_EQ(sigaction(SIGSEGV, &action, &previous), 0);
	nupa_guard_renew();
	check_guarded();
	nowhere[8] = 1;
}

static void crash_at_second_fault(void)
{
	set_function(jump_back, (int)SA_RESETHAND);
	nupa_guard_renew();
	fault();
	check_guarded();
	fault();
}

static void send_itself(void)
{
	kill(getpid(), SIGSEGV);
	pause();
}

static void crash_though_ignored(void)
{
	CHECK(signal(SIGSEGV, SIG_IGN) != SIG_ERR);
	nupa_guard_renew();
	kill(getpid(), SIGSEGV); /* ignored */
	check_guarded();
	nowhere[8] = 1;
}

TEST(programs_that_crash_end_by_their_signal)
{
	map_nowhere();
	nupa_guard_install();
	expect_end_by(crash, SIGSEGV);
	expect_end_by(crash_on_chain, SIGSEGV);
#ifndef __SANITIZE_THREAD__ /* which holds back what a handler raises until that returns */
	expect_end_by(crash_on_raise, SIGSEGV);
#endif
	expect_end_by(crash_at_second_fault, SIGSEGV);
	expect_end_by(send_itself, SIGSEGV);
	expect_end_by(crash_though_ignored, SIGSEGV);
}

#define NO_PTRACE 77

/* A debugger and a core file see the instruction and the address of the fault. */
TEST(the_last_signal_is_that_of_the_fault)
{
	siginfo_t info = { 0 };
	int status;
	pid_t pid;

	map_nowhere();
	nupa_guard_install();
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(errno == ENOSYS ? NO_PTRACE : 2);
		crash();
		_exit(2);
	}
	for (int faults = 0;; faults++) {
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		if (!WIFSTOPPED(status))
			break;
		CHECK_EQ(WSTOPSIG(status), SIGSEGV);
		CHECK(faults < 2);
		CHECK_EQ(ptrace(PTRACE_GETSIGINFO, pid, NULL, &info), 0);
		CHECK_EQ(ptrace(PTRACE_CONT, pid, NULL, SIGSEGV), 0);
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == NO_PTRACE)
		return; /* QEMU's user mode has none */
	CHECK(WIFSIGNALED(status));
	CHECK(info.si_addr == (void *)(uintptr_t)(nowhere + 8));
	CHECK_EQ(info.si_code, SEGV_ACCERR);
}

static void *block_all_and_copy(void *nothing)
{
	sigset_t all;

	sigfillset(&all);
	CHECK_EQ(pthread_sigmask(SIG_SETMASK, &all, NULL), 0);
	nupa_guard_admit_thread();
	check_guarded();
	return nothing;
}

TEST(a_thread_that_blocks_all_signals_copies_too)
{
	pthread_t thread;

	map_nowhere();
	nupa_guard_install();
	CHECK_EQ(pthread_create(&thread, NULL, block_all_and_copy, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}
