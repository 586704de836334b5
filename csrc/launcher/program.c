// SPDX-License-Identifier: BSD-3-Clause
/* The program as a child: signals go to it, and its end is ours; as nupa/cli/run/program.py. */
#include "launcher/launcher.h"

#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Signals that others may send us for the program.  Not SIGTSTP: a shell stops and continues both.
 */
static const int forwarded[] = { SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,
				 SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH };
/* Those that Python ignores: its programs have them as they are by default. */
static const int restored[] = { SIGPIPE, SIGXFSZ };

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static void waited(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGCHLD);
	for (size_t i = 0; i < COUNT(forwarded); i++)
		sigaddset(set, forwarded[i]);
}

void nupa_program_block(sigset_t *before)
{
	sigset_t set;

	/* If our parent ignored SIGCHLD, there would be nothing to wait for. */
	signal(SIGCHLD, SIG_DFL);
	waited(&set);
	sigprocmask(SIG_BLOCK, &set, before);
}

void nupa_program_unblock(const sigset_t *before)
{
	sigprocmask(SIG_SETMASK, before, NULL);
}

bool nupa_program_is_ended(void)
{
	sigset_t pending;
	bool ended = false;

	sigpending(&pending);
	for (size_t i = 0; i < COUNT(forwarded); i++)
		ended |= forwarded[i] != SIGWINCH && sigismember(&pending, forwarded[i]);
	return ended;
}

pid_t nupa_program_start(char **command, char **environment, const sigset_t *mask)
{
	posix_spawnattr_t attributes;
	sigset_t defaults;
	pid_t child;
	int error;

	sigemptyset(&defaults);
	for (size_t i = 0; i < COUNT(restored); i++)
		sigaddset(&defaults, restored[i]);
	if (posix_spawnattr_init(&attributes))
		return -1;
	posix_spawnattr_setsigmask(&attributes, mask);
	posix_spawnattr_setsigdefault(&attributes, &defaults);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	error = posix_spawnp(&child, command[0], NULL, &attributes, command, environment);
	posix_spawnattr_destroy(&attributes);
	return error ? -1 : child;
}

int nupa_program_await(pid_t child)
{
	siginfo_t got;
	sigset_t set;
	int status;

	waited(&set);
	for (;;) {
		if (sigwaitinfo(&set, &got) < 0)
			continue; /* EINTR: stopped and continued */
		if (got.si_signo == SIGCHLD) {
			if (waitpid(child, &status, WNOHANG) == child)
				return status;
		} else if (got.si_code <= 0) {
			/* A terminal signals the whole foreground group (SI_KERNEL, > 0), so the
			 * program, too. */
			kill(child, got.si_signo);
		}
	}
}

int nupa_program_end_as(int status, const sigset_t *before)
{
	const int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	struct rlimit limit;
	sigset_t set;

	nupa_program_unblock(before);
	if (!number)
		return WEXITSTATUS(status);
	/* No second core dump. */
	getrlimit(RLIMIT_CORE, &limit);
	limit.rlim_cur = 0;
	setrlimit(RLIMIT_CORE, &limit);
	signal(number, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, number);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	kill(getpid(), number);
	/* Only reached for a signal whose default action is not to end the process. */
	_exit(128 + number);
}
