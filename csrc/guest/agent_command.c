// SPDX-License-Identifier: BSD-3-Clause
/*
 * Starting and ending a command: a session of its own, on three pipes or on a terminal.
 */
#include "guest/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define POLL_STEP_MS 10

/* The last message of a child that cannot become the command. */
struct failure {
	enum { AT_STREAMS, AT_CWD, AT_EXEC } at;
	int error;
};

/* The child's side of its streams. */
struct streams {
	int in, out, err;
	char terminal[64]; /* its path instead; empty: none */
};

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void streams_close(struct streams *streams)
{
	close_fd(&streams->in);
	close_fd(&streams->out);
	close_fd(&streams->err);
}

void command_close(struct command *command)
{
	if (command->out != command->in)
		close_fd(&command->out);
	close_fd(&command->in);
	close_fd(&command->err);
	close_fd(&command->pidfd);
	*command = (struct command){ .pidfd = -1, .in = -1, .out = -1, .err = -1 };
}

/* A pipe: the child's end into *theirs*, ours, non-blocking, into *ours*.  False: see errno. */
static bool make_pipe(int *ours, int *theirs, bool child_reads)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return false;
	*theirs = ends[child_reads ? 0 : 1];
	*ours = ends[child_reads ? 1 : 0];
	return !fcntl(*ours, F_SETFL, O_NONBLOCK);
}

static bool make_pipes(struct command *command, struct streams *streams)
{
	return make_pipe(&command->in, &streams->in, true) &&
	       make_pipe(&command->out, &streams->out, false) &&
	       make_pipe(&command->err, &streams->err, false);
}

static bool make_terminal(struct command *command, struct streams *streams,
			  const struct order *order)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);

	if (master < 0)
		return false;
	command->in = command->out = master;
	command->tty = true;
	if (unlockpt(master) || ptsname_r(master, streams->terminal, sizeof(streams->terminal)))
		return false;
	command_resize(command, order->rows, order->columns);
	return true;
}

void command_resize(const struct command *command, uint16_t rows, uint16_t columns)
{
	struct winsize size = { .ws_row = rows, .ws_col = columns };

	/* Only the size of the display depends on it. */
	if (command->tty && command->in >= 0)
		(void)ioctl(command->in, TIOCSWINSZ, &size);
}

/* In the child, whose session is its own: standard streams.  False: see errno. */
static bool take_streams(struct streams *streams)
{
	if (streams->terminal[0]) {
		/* The first terminal that a session's leader opens is its own. */
		streams->in = open(streams->terminal, O_RDWR | O_CLOEXEC);
		if (streams->in < 0)
			return false;
		streams->out = streams->err = streams->in;
	}
	return dup2(streams->in, 0) == 0 && dup2(streams->out, 1) == 1 &&
	       dup2(streams->err, 2) == 2;
}

static void reset_signals(void)
{
	sigset_t none;

	for (int number = 1; number < NSIG; number++)
		signal(number, SIG_DFL); /* fails for a few that cannot be set */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static _Noreturn void become(const struct order *order, struct streams *streams, int report)
{
	struct failure failure = { .at = AT_STREAMS };

	setsid();
	reset_signals();
	if (take_streams(streams)) {
		failure.at = AT_CWD;
		if (!chdir(order->cwd)) {
			failure.at = AT_EXEC;
			environ = (char **)order->env; /* execvp looks for PATH there */
			execvp(order->argv[0], order->argv);
		}
	}
	failure.error = errno;
	_exit(write(report, &failure, sizeof(failure)) == sizeof(failure) ? 127 : 126);
}

/* Waits until the child is the command, or has reported why not: 0 or -errno. */
static int hear(int report, const struct order *order, char *why, size_t why_bytes)
{
	struct failure failure;
	ssize_t got;

	do
		got = read(report, &failure, sizeof(failure));
	while (got < 0 && errno == EINTR);
	if (got != sizeof(failure))
		return 0; /* exec closed it */
	const char *verb = failure.at == AT_EXEC  ? "run"
			   : failure.at == AT_CWD ? "enter"
						  : "connect the streams of";
	snprintf(why, why_bytes, "cannot %s %.200s in the guest: %s", verb,
		 failure.at == AT_CWD ? order->cwd : order->argv[0], strerror(failure.error));
	return -failure.error;
}

static int start(struct command *command, struct streams *streams, int report[2],
		 const struct order *order, char *why, size_t why_bytes)
{
	bool made =
	    order->tty ? make_terminal(command, streams, order) : make_pipes(command, streams);

	command->pid = made && !pipe2(report, O_CLOEXEC) ? fork() : -1;
	if (command->pid == 0)
		become(order, streams, report[1]);
	if (command->pid < 0) {
		int failed = errno;

		command->pid = 0;
		snprintf(why, why_bytes, "cannot start a process in the guest: %s",
			 strerror(failed));
		return -failed;
	}
	close_fd(&report[1]);
	int error = hear(report[0], order, why, why_bytes);
	if (!error) {
		command->pidfd = (int)syscall(SYS_pidfd_open, command->pid, 0);
		if (command->pidfd >= 0)
			return 0;
		error = -errno;
		snprintf(why, why_bytes, "cannot watch a process: %s", strerror(-error));
		kill(-command->pid, SIGKILL);
	}
	waitpid(command->pid, NULL, 0);
	return error;
}

int command_start(struct command *command, const struct order *order, char *why, size_t why_bytes)
{
	struct streams streams = { .in = -1, .out = -1, .err = -1 };
	int report[2] = { -1, -1 };

	*command = (struct command){ .pidfd = -1, .in = -1, .out = -1, .err = -1 };
	int error = start(command, &streams, report, order, why, why_bytes);
	streams_close(&streams);
	close_fd(&report[0]);
	close_fd(&report[1]);
	if (error)
		command_close(command);
	return error;
}

void command_end(struct command *command)
{
	const struct timespec step = { .tv_nsec = POLL_STEP_MS * 1000000L };
	pid_t group = command->pid;

	if (!group)
		return;
	kill(-group, command->tty ? SIGHUP : SIGTERM); /* a shell at a terminal ignores SIGTERM */
	kill(-group, SIGCONT);                         /* a stopped one would not hear it */
	for (int waited_ms = 0; waited_ms < AGENT_GRACE_MS; waited_ms += POLL_STEP_MS) {
		if (!command->ended)
			command->ended = waitpid(group, &command->status, WNOHANG) == group;
		if (command->ended && kill(-group, 0)) {
			command_close(command); /* no process is left in it */
			return;
		}
		nanosleep(&step, NULL);
	}
	kill(-group, SIGKILL);
	if (!command->ended)
		waitpid(group, &command->status, 0);
	command_close(command);
}
