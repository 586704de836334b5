/* SPDX-License-Identifier: BSD-3-Clause
 * The promises of man ibv_fork_init and their consequences: prints a line for each that held,
 * and ends with 1 at the first that did not. */
#include "rc.h"

#include <sys/wait.h>
#include <unistd.h>

static void exchange(struct end *from, struct end *to, unsigned char byte)
{
	memset(from->memory, byte, BYTES);
	end_receive(to, 0, BYTES);
	end_send(from, 0, BYTES);
	MUST(end_wait(from) == IBV_WC_SUCCESS);
	MUST(end_wait(to) == IBV_WC_SUCCESS);
	for (int i = 0; i < BYTES; i++)
		MUST(to->memory[i] == byte);
}

static void expect_exit(pid_t pid, const char *what)
{
	int status;

	MUST(pid > 0);
	MUST(waitpid(pid, &status, 0) == pid);
	MUST(status == 0);
	puts(what);
	fflush(stdout);
}

/* The child's memory is that of the moment of the fork, also when data arrives at the parent
 * later. */
static void copies(struct end *from, struct end *to)
{
	int go[2];
	pid_t pid;
	char byte;

	exchange(from, to, 0x11);
	MUST(!pipe(go));
	pid = fork();
	if (pid == 0) {
		MUST(read(go[0], &byte, 1) == 1);
		for (int i = 0; i < BYTES; i++)
			MUST(to->memory[i] == 0x11);
		memset(to->memory, 0x77, BYTES); /* no other process sees that */
		_exit(0);
	}
	exchange(from, to, 0x22);
	MUST(write(go[1], "g", 1) == 1);
	expect_exit(pid, "the child has its copy");
	for (int i = 0; i < BYTES; i++)
		MUST(to->memory[i] == 0x22);
	exchange(from, to, 0x33);
	puts("the parent goes on");
	close(go[0]);
	close(go[1]);
}

static void child_that_runs_another_program(struct end *from, struct end *to)
{
	pid_t pid = fork();

	if (pid == 0) {
		execlp("true", "true", (char *)NULL);
		_exit(1);
	}
	exchange(from, to, 0x44);
	expect_exit(pid, "a child that runs another program harms no process");
	exchange(from, to, 0x55);
}

/* By exit(), with all destructors, and after closing what it never had. */
static void child_that_tidies_up(struct end *from, struct end *to)
{
	pid_t pid = fork();

	if (pid == 0) {
		end_close(from);
		exit(0);
	}
	expect_exit(pid, "a child may close what it inherited");
	exchange(from, to, 0x66);
}

static void write_all(int fd, const void *data, size_t bytes)
{
	MUST(write(fd, data, bytes) == (ssize_t)bytes);
}

static void read_all(int fd, void *data, size_t bytes)
{
	MUST(read(fd, data, bytes) == (ssize_t)bytes);
}

/* A child that opens the device anew is a partner as any other process. */
static void child_that_attaches(struct end *parents)
{
	struct address mine, peer;
	int down[2], up[2];
	pid_t pid;

	MUST(!pipe(down) && !pipe(up));
	pid = fork();
	if (pid == 0) {
		struct end end = { 0 };

		end_open(&end);
		end_make_qp(&end);
		mine = end_address(&end);
		write_all(up[1], &mine, sizeof(mine));
		read_all(down[0], &peer, sizeof(peer));
		end_connect(&end, &peer);
		end_receive(&end, 0, BYTES);
		write_all(up[1], "r", 1);
		MUST(end_wait(&end) == IBV_WC_SUCCESS);
		MUST(end.memory[BYTES - 1] == 0x7a);
		end_send(&end, 0, BYTES);
		MUST(end_wait(&end) == IBV_WC_SUCCESS);
		end_close(&end);
		_exit(0);
	}
	close(up[1]);
	close(down[0]);
	end_make_qp(parents);
	mine = end_address(parents);
	read_all(up[0], &peer, sizeof(peer));
	MUST(peer.qpn != mine.qpn && peer.qpn >> 16 != mine.qpn >> 16);
	end_connect(parents, &peer);
	write_all(down[1], &mine, sizeof(mine));
	read_all(up[0], &(char){ 0 }, 1);
	memset(parents->memory, 0x7a, BYTES);
	end_receive(parents, 0, BYTES);
	end_send(parents, 0, BYTES);
	MUST(end_wait(parents) == IBV_WC_SUCCESS);
	MUST(end_wait(parents) == IBV_WC_SUCCESS);
	expect_exit(pid, "a child that attaches anew talks to its parent");
	close(up[0]);
	close(down[1]);
}

int main(void)
{
	struct end from = { 0 }, to = { 0 }, third = { 0 };
	struct address address;

	MUST(!ibv_fork_init());
	end_open(&from);
	end_open(&to);
	end_open(&third);
	end_make_qp(&from);
	end_make_qp(&to);
	address = end_address(&to);
	end_connect(&from, &address);
	address = end_address(&from);
	end_connect(&to, &address);
	copies(&from, &to);
	child_that_runs_another_program(&from, &to);
	child_that_tidies_up(&from, &to);
	child_that_attaches(&third);
	exchange(&to, &from, 0x12);
	end_close(&from);
	end_close(&to);
	end_close(&third);
	return 0;
}
