/* SPDX-License-Identifier: BSD-3-Clause
 * The agent of a guest (vm/agent.h) behind a socket: commands, their streams, and their end. */
#include "tests/support/runner.h"
#include "tests/guest/vm_client.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(a_command_has_its_arguments_environment_and_folder)
{
	struct client *client = client_new();

	RUN(client, 0, SH("echo \"$1|$2|$WORD|$PWD\"; echo bad >&2; exit 7") "\0name\0a b\0");
	struct outcome outcome = finish(client);
	CHECK_EQ(WEXITSTATUS(outcome.status), 7);
	CHECK(WIFEXITED(outcome.status));
	CHECK(!strcmp(outcome.out, "a b||value|/\n"));
	CHECK(!strcmp(outcome.err, "bad\n"));
	client_free(client);
}

TEST(a_second_command_may_follow_the_first)
{
	struct client *client = client_new();

	for (int i = 0; i < 3; i++) {
		RUN(client, 0, "true");
		CHECK_EQ(finish(client).status, 0);
	}
	client_free(client);
}

TEST(a_program_that_is_not_there_is_an_errno_with_a_sentence)
{
	struct client *client = client_new();

	RUN(client, 0, "no-such-program");
	struct outcome outcome = finish(client);
	CHECK_EQ(outcome.status, -ENOENT);
	CHECK(strstr(outcome.why, "cannot run no-such-program"));
	RUN(client, 0, "true");
	CHECK_EQ(finish(client).status, 0);
	client_free(client);
}

TEST(input_reaches_the_command_and_ends_with_an_empty_frame)
{
	struct client *client = client_new();

	RUN(client, 0, "cat");
	put(client, FRAME_STDIN, "one ", 4);
	put(client, FRAME_STDIN, "two", 3);
	put(client, FRAME_STDIN, "", 0);
	put(client, FRAME_STDIN, "late", 4); /* dropped */
	struct outcome outcome = finish(client);
	CHECK_EQ(outcome.status, 0);
	CHECK(!strcmp(outcome.out, "one two"));
	client_free(client);
}

/* Sixteen megabytes, more than all buffers together, from a process of its own. */
TEST(much_input_and_output_pass_unchanged)
{
	enum { FRAMES = 256 };
	struct client *client = client_new();
	static uint8_t block[AGENT_PAYLOAD_BYTES_MAX];
	uint64_t sum = 0, wanted = 0, bytes = 0;

	RUN(client, 0, "cat");
	pid_t writer = fork();
	CHECK(writer >= 0);
	for (uint32_t i = 0; i < FRAMES; i++) {
		memset(block, (int)(i * 7 + 1), sizeof(block));
		wanted += (uint64_t)sizeof(block) * block[0] * (i + 1);
		if (!writer)
			put(client, FRAME_STDIN, block, sizeof(block));
	}
	if (!writer) {
		put(client, FRAME_STDIN, "", 0);
		_exit(0);
	}
	while (take(client) == FRAME_STDOUT)
		for (uint32_t i = 0; i < client->bytes; i++, bytes++)
			sum += client->payload[i] * (bytes / sizeof(block) + 1);
	CHECK_EQ(bytes, (uint64_t)FRAMES * sizeof(block));
	CHECK_EQ(sum, wanted);
	CHECK_EQ(bury(writer), 0);
	client_free(client);
}

TEST(a_signal_passes_input_that_nobody_reads)
{
	static const uint8_t block[AGENT_PAYLOAD_BYTES_MAX];
	struct client *client = client_new();
	uint32_t number = SIGINT;

	RUN(client, 0, SH("exec sleep 1000"));
	for (size_t i = 0; i < AGENT_STDIN_BYTES_MAX / sizeof(block) - 1; i++)
		put(client, FRAME_STDIN, block, sizeof(block));
	put(client, FRAME_SIGNAL, &number, sizeof(number));
	struct outcome outcome = finish(client);
	CHECK(WIFSIGNALED(outcome.status));
	CHECK_EQ(WTERMSIG(outcome.status), SIGINT);
	/* Unread input does not reach the next command. */
	RUN(client, 0, SH("wc -c"));
	put(client, FRAME_STDIN, "", 0);
	CHECK_EQ(strtol(finish(client).out, NULL, 10), 0);
	client_free(client);
}

TEST(a_terminal_has_its_size_and_echoes)
{
	struct client *client = client_new();
	const uint16_t size[2] = { 50, 60 };

	RUN(client, RUN_TTY, SH("stty size; read line; stty size; test -t 2 && echo got $line"));
	char text[TEXT_BYTES_MAX] = "";
	while (!strchr(text, '\n')) {
		CHECK_EQ(take(client), FRAME_STDOUT);
		append(text, client);
	}
	CHECK(!strcmp(text, "33 44\r\n"));
	put(client, FRAME_RESIZE, size, sizeof(size));
	put(client, FRAME_STDIN, "word\n", 5);
	struct outcome outcome = finish(client);
	CHECK_EQ(outcome.status, 0);
	CHECK(!strcmp(outcome.out, "word\r\n50 60\r\ngot word\r\n"));
	client_free(client);
}

TEST(input_of_a_terminal_ends_too)
{
	struct client *client = client_new();

	RUN(client, RUN_TTY, "cat");
	put(client, FRAME_STDIN, "", 0);
	CHECK_EQ(finish(client).status, 0);
	client_free(client);
}

TEST(processes_that_a_command_leaves_running_are_not_waited_for)
{
	struct client *client = client_new();

	RUN(client, 0, SH("sleep 1000 & echo $!; exit 3"));
	struct outcome outcome = finish(client);
	CHECK_EQ(WEXITSTATUS(outcome.status), 3);
	pid_t left = (pid_t)strtol(outcome.out, NULL, 10);
	client_free(client);
	CHECK_EQ(kill(left, SIGKILL), 0);
	CHECK_EQ(WTERMSIG(bury(left)), SIGKILL);
}

TEST(a_hang_up_ends_the_whole_group)
{
	struct client *client = client_new();

	RUN(client, 0, SH("sleep 1000 & echo $!; wait"));
	pid_t child = take_pid(client);
	client_free(client);
	CHECK_EQ(WTERMSIG(bury(child)), SIGTERM);
}

TEST(a_hang_up_ends_who_ignores_sigterm)
{
	struct client *client = client_new();

	RUN(client, 0, SH("trap '' TERM; sleep 1000 & echo $!; while :; do wait; done"));
	pid_t child = take_pid(client);
	client_free(client);
	CHECK_EQ(WTERMSIG(bury(child)), SIGKILL);
}

TEST(a_hang_up_ends_a_command_that_writes_without_end)
{
	struct client *client = client_new();

	RUN(client, 0, SH("yes & echo $! >&2; wait"));
	while (take(client) != FRAME_STDERR)
		;
	pid_t child = (pid_t)strtol((char *)client->payload, NULL, 10);
	client_free(client);
	CHECK_EQ(WTERMSIG(bury(child)), SIGTERM);
}
