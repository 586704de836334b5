/* SPDX-License-Identifier: BSD-3-Clause
 * One end of a connection that does what its stdin says and answers each line by one:
 *
 *   address             QPN GID
 *   connect QPN GID     connected
 *   receive             posts one: posted
 *   send                posts one and waits: its status
 *   wait                the status of the next completion
 *   fork                makes a child that sleeps until stdin ends: its pid
 *   exec                becomes cat(1), which copies the lines that follow
 *   close               closes all in order: closed */
#include "rc.h"

#include <arpa/inet.h>
#include <unistd.h>

static void connect_to(struct end *end, const char *words)
{
	struct address peer;
	char gid[64];

	MUST(sscanf(words, "%u %63s", &peer.qpn, gid) == 2);
	MUST(inet_pton(AF_INET6, gid, &peer.gid) == 1);
	end_connect(end, &peer);
	puts("connected");
}

static void say_address(const struct end *end)
{
	struct address mine = end_address(end);
	char gid[64];

	MUST(inet_ntop(AF_INET6, &mine.gid, gid, sizeof(gid)));
	printf("%u %s\n", mine.qpn, gid);
}

/* Waits without reading: stdin is the parent's. */
static void fork_sleeper(void)
{
	int ends[2];
	pid_t pid;

	MUST(!pipe(ends));
	pid = fork();
	if (pid == 0) {
		char byte;

		close(ends[1]);
		(void)!read(ends[0], &byte, 1);
		_exit(0);
	}
	close(ends[0]);
	printf("%d\n", (int)pid);
}

int main(void)
{
	struct end end = { 0 };
	char line[256];

	end_open(&end);
	end_make_qp(&end);
	setvbuf(stdout, NULL, _IOLBF, 0);
	setvbuf(stdin, NULL, _IONBF, 0);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		if (!strcmp(line, "address")) {
			say_address(&end);
		} else if (!strncmp(line, "connect ", 8)) {
			connect_to(&end, line + 8);
		} else if (!strcmp(line, "receive")) {
			end_receive(&end, 0, 64);
			puts("posted");
		} else if (!strcmp(line, "send")) {
			end_send(&end, 0, 64);
			puts(ibv_wc_status_str(end_wait(&end)));
		} else if (!strcmp(line, "wait")) {
			puts(ibv_wc_status_str(end_wait(&end)));
		} else if (!strcmp(line, "fork")) {
			fork_sleeper();
		} else if (!strcmp(line, "exec")) {
			execlp("cat", "cat", (char *)NULL);
			MUST(!"exec");
		} else if (!strcmp(line, "close")) {
			end_close(&end);
			puts("closed");
		} else {
			fprintf(stderr, "what is %s?\n", line);
			return 2;
		}
	}
	return 0;
}
