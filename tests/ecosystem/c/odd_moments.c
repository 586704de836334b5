/* SPDX-License-Identifier: BSD-3-Clause
 * Reads the device's files at odd moments: before main, in a signal handler inside malloc, in
 * threads, in a child of fork and after exec.  Prints "MOMENT TEXT" for each. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define NODE_TYPE "/sys/class/infiniband/nupa_rdma0/node_type"
#define STATE "/sys/class/infiniband/nupa_rdma0/ports/1/state"
#define INTERRUPTIONS 200

static char before_main[64];
static volatile sig_atomic_t interruptions, misread;

static void read_text(const char *path, char *text, size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, text, bytes - 1);

	if (fd >= 0)
		close(fd);
	text[got < 0 ? 0 : got] = '\0';
	text[strcspn(text, "\n")] = '\0';
}

static void say(const char *moment, const char *path)
{
	char text[64];

	read_text(path, text, sizeof(text));
	printf("%s %s\n", moment, text);
	fflush(stdout);
}

__attribute__((constructor(101))) static void first_of_all(void)
{
	read_text(NODE_TYPE, before_main, sizeof(before_main));
}

static void interrupt(int number)
{
	int saved = errno;
	char text[64];

	(void)number;
	read_text(NODE_TYPE, text, sizeof(text));
	misread += strcmp(text, "1: CA") != 0;
	interruptions++;
	errno = saved;
}

static void interrupt_malloc(void)
{
	struct itimerval often = { { 0, 500 }, { 0, 500 } }, never = { { 0, 0 }, { 0, 0 } };

	signal(SIGALRM, interrupt);
	setitimer(ITIMER_REAL, &often, NULL);
	while (interruptions < INTERRUPTIONS)
		free(malloc(100000));
	setitimer(ITIMER_REAL, &never, NULL);
	printf("signals %d misread\n", (int)misread);
}

/* A live file is renewed by each look: a reader meanwhile must find all of it. */
static void *read_often(void *failures)
{
	char text[64];

	for (int i = 0; i < 200; i++) {
		read_text(STATE, text, sizeof(text));
		*(int *)failures += strcmp(text, "4: ACTIVE") != 0;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[4];
	int failures[4] = { 0 };

	if (argc > 1) {
		say("exec", NODE_TYPE);
		return 0;
	}
	printf("constructor %s\n", before_main);
	say("main", NODE_TYPE);
	interrupt_malloc();
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, read_often, &failures[i]);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	printf("threads %d misread\n", failures[0] + failures[1] + failures[2] + failures[3]);
	fflush(stdout);
	if (fork() == 0) {
		say("fork", STATE);
		execl("/proc/self/exe", argv[0], "again", NULL);
		_exit(1);
	}
	wait(NULL);
	return 0;
}
