/* SPDX-License-Identifier: BSD-3-Clause
 * The agent of a guest (vm/agent.h) behind a socket: commands, their streams, and clients that
 * break the protocol or go away. */
#include "agent.h"
#include "support/runner.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define HELLO "protocol=1\nhost=test\n"
#define DEADLINE_MS 20000
#define TEXT_BYTES_MAX 8192
#define SH(script) "sh\0-c\0" script

struct client {
	int fd;
	pid_t agent;
	uint32_t bytes; /* of the payload that came last */
	uint8_t payload[AGENT_PAYLOAD_BYTES_MAX];
};

/* What a command wrote, and how it ended. */
struct outcome {
	char out[TEXT_BYTES_MAX], err[TEXT_BYTES_MAX];
	int32_t status;
	char why[TEXT_BYTES_MAX];
};

static void receive(int fd, void *to, size_t bytes)
{
	for (size_t got = 0; got < bytes;) {
		struct pollfd waiting = { .fd = fd, .events = POLLIN };

		CHECK_EQ(poll(&waiting, 1, DEADLINE_MS), 1);
		ssize_t more = read(fd, (uint8_t *)to + got, bytes - got);
		CHECK(more > 0);
		got += (size_t)more;
	}
}

static void send_all(int fd, const void *from, size_t bytes)
{
	for (size_t sent = 0; sent < bytes;) {
		ssize_t more = send(fd, (const uint8_t *)from + sent, bytes - sent, MSG_NOSIGNAL);

		CHECK(more > 0);
		sent += (size_t)more;
	}
}

/* Sends a frame with that payload. */
static void put(struct client *client, uint32_t kind, const void *payload, uint32_t bytes)
{
	struct frame_head head = { .kind = kind, .bytes = bytes };

	send_all(client->fd, &head, sizeof(head));
	send_all(client->fd, payload, bytes);
}

/* Takes the next frame: its kind. */
static uint32_t take(struct client *client)
{
	struct frame_head head;

	receive(client->fd, &head, sizeof(head));
	CHECK(head.bytes <= AGENT_PAYLOAD_BYTES_MAX);
	receive(client->fd, client->payload, head.bytes);
	client->bytes = head.bytes;
	return head.kind;
}

/* A client that has been greeted. */
static struct client *client_new(void)
{
	struct client *client = calloc(1, sizeof(*client));
	int ends[2];

	CHECK(client);
	/* What commands leave behind comes to this process, which can then tell that it has gone.
	 */
	CHECK_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	client->agent = fork();
	CHECK(client->agent >= 0);
	if (!client->agent) {
		close(ends[0]);
		/* ECONNRESET: there was something that nobody read. */
		int error = agent_serve(ends[1], HELLO, NULL);
		_exit(error == -EPIPE || error == -ECONNRESET ? 0 : 1);
	}
	close(ends[1]);
	client->fd = ends[0];
	CHECK_EQ(take(client), FRAME_HELLO);
	CHECK_EQ(client->bytes, strlen(HELLO));
	CHECK(!memcmp(client->payload, HELLO, client->bytes));
	return client;
}

/* Hangs up; the agent has ended its command by then, and ends because nobody else can come. */
static void client_free(struct client *client)
{
	int status;

	close(client->fd);
	CHECK_EQ(waitpid(client->agent, &status, 0), client->agent);
	CHECK_EQ(status, 0);
	free(client);
}

/* Runs *words*, NUL between them, with flags, in the folder /, with PATH and WORD=value. */
static void run_words(struct client *client, uint32_t flags, const char *words, size_t bytes)
{
	static const char environment[] = "PATH=/usr/bin:/bin\0WORD=value";
	uint8_t payload[4096];
	int argc = 1;
	const uint16_t size[2] = { 33, 44 };

	for (size_t i = 0; i < bytes - 1; i++)
		argc += !words[i];
	memcpy(payload, &flags, 4);
	memcpy(payload + 4, size, 4);
	int at = 8 + snprintf((char *)payload + 8, 64, "/%c%d", 0, argc) + 1;
	CHECK((size_t)at + bytes + sizeof(environment) <= sizeof(payload));
	memcpy(payload + at, words, bytes);
	memcpy(payload + (size_t)at + bytes, environment, sizeof(environment));
	put(client, FRAME_RUN, payload, (uint32_t)((size_t)at + bytes + sizeof(environment)));
}

#define RUN(client, flags, words) run_words(client, flags, words, sizeof(words))

static void append(char *text, const struct client *client)
{
	size_t used = strlen(text);

	CHECK(used + client->bytes < TEXT_BYTES_MAX);
	memcpy(text + used, client->payload, client->bytes);
	text[used + client->bytes] = '\0';
}

/* All that comes until the EXIT. */
static struct outcome finish(struct client *client)
{
	struct outcome outcome = { 0 };
	uint32_t kind;

	while ((kind = take(client)) != FRAME_EXIT) {
		CHECK(kind == FRAME_STDOUT || kind == FRAME_STDERR);
		append(kind == FRAME_STDOUT ? outcome.out : outcome.err, client);
	}
	CHECK(client->bytes >= sizeof(outcome.status));
	memcpy(&outcome.status, client->payload, sizeof(outcome.status));
	memcpy(outcome.why, client->payload + sizeof(outcome.status),
	       client->bytes - sizeof(outcome.status));
	return outcome;
}

/* The number that a command prints first. */
static pid_t take_pid(struct client *client)
{
	char text[TEXT_BYTES_MAX] = "";

	while (!strchr(text, '\n')) {
		CHECK_EQ(take(client), FRAME_STDOUT);
		append(text, client);
	}
	return (pid_t)strtol(text, NULL, 10);
}

/* Waits for the end of an orphan of ours: its wait status. */
static int bury(pid_t pid)
{
	int status;

	CHECK(pid > 1);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	return status;
}

static void a_command_has_its_arguments_environment_and_folder(void)
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

static void a_second_command_may_follow_the_first(void)
{
	struct client *client = client_new();

	for (int i = 0; i < 3; i++) {
		RUN(client, 0, "true");
		CHECK_EQ(finish(client).status, 0);
	}
	client_free(client);
}

static void a_program_that_is_not_there_is_an_errno_with_a_sentence(void)
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

static void input_reaches_the_command_and_ends_with_an_empty_frame(void)
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
static void much_input_and_output_pass_unchanged(void)
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

static void a_signal_passes_input_that_nobody_reads(void)
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
	/* What was not read is not the next one's. */
	RUN(client, 0, SH("wc -c"));
	put(client, FRAME_STDIN, "", 0);
	CHECK_EQ(strtol(finish(client).out, NULL, 10), 0);
	client_free(client);
}

static void a_terminal_has_its_size_and_echoes(void)
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

static void input_of_a_terminal_ends_too(void)
{
	struct client *client = client_new();

	RUN(client, RUN_TTY, "cat");
	put(client, FRAME_STDIN, "", 0);
	CHECK_EQ(finish(client).status, 0);
	client_free(client);
}

static void what_a_command_leaves_running_is_not_waited_for(void)
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

static void a_hang_up_ends_the_whole_group(void)
{
	struct client *client = client_new();

	RUN(client, 0, SH("sleep 1000 & echo $!; wait"));
	pid_t child = take_pid(client);
	client_free(client);
	CHECK_EQ(WTERMSIG(bury(child)), SIGTERM);
}

static void a_hang_up_ends_who_ignores_sigterm(void)
{
	struct client *client = client_new();

	RUN(client, 0, SH("trap '' TERM; sleep 1000 & echo $!; while :; do wait; done"));
	pid_t child = take_pid(client);
	client_free(client);
	CHECK_EQ(WTERMSIG(bury(child)), SIGKILL);
}

static void a_hang_up_ends_a_command_that_writes_without_end(void)
{
	struct client *client = client_new();

	RUN(client, 0, SH("yes & echo $! >&2; wait"));
	while (take(client) != FRAME_STDERR)
		;
	pid_t child = (pid_t)strtol((char *)client->payload, NULL, 10);
	client_free(client);
	CHECK_EQ(WTERMSIG(bury(child)), SIGTERM);
}

/* After a refusal comes an EXIT with EPROTO, and nothing is taken until the client has gone: what
 * the socket's half that is still open then gets is the HELLO of the next one. */
static void check_refused(struct client *client, const char *why)
{
	struct outcome outcome = finish(client);

	CHECK_EQ(outcome.status, -EPROTO);
	CHECK(strstr(outcome.why, why));
	RUN(client, 0, SH("echo never"));
	CHECK_EQ(shutdown(client->fd, SHUT_WR), 0);
	CHECK_EQ(take(client), FRAME_HELLO);
	client_free(client);
}

static void a_frame_that_is_too_long_ends_the_command(void)
{
	struct client *client = client_new();
	struct frame_head head = { .kind = FRAME_STDIN, .bytes = AGENT_PAYLOAD_BYTES_MAX + 1 };

	RUN(client, 0, SH("sleep 1000 & echo $!; wait"));
	pid_t child = take_pid(client);
	send_all(client->fd, &head, sizeof(head));
	check_refused(client, "too long");
	CHECK_EQ(WTERMSIG(bury(child)), SIGTERM);
}

static void a_frame_of_unknown_kind_is_refused(void)
{
	static const uint32_t kinds[] = { 0, 5, FRAME_HELLO, FRAME_EXIT, UINT32_MAX };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct client *client = client_new();

		put(client, kinds[i], "x", 1);
		check_refused(client, "not of this protocol");
	}
}

static void a_second_command_at_once_is_refused(void)
{
	struct client *client = client_new();

	RUN(client, 0, SH("sleep 1000"));
	RUN(client, 0, "true");
	check_refused(client, "a command runs here already");
}

static void signals_and_sizes_that_cannot_be_are_refused(void)
{
	static const struct {
		uint32_t kind, number, bytes;
	} frames[] = {
		{ FRAME_SIGNAL, 0, 4 },  { FRAME_SIGNAL, 65, 4 }, { FRAME_SIGNAL, UINT32_MAX, 4 },
		{ FRAME_SIGNAL, 15, 3 }, { FRAME_RESIZE, 0, 3 },  { FRAME_RESIZE, 0, 0 },
	};

	for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++) {
		struct client *client = client_new();

		put(client, frames[i].kind, &frames[i].number, frames[i].bytes);
		check_refused(client, "not of this protocol");
	}
}

static void malformed_commands_are_refused(void)
{
#define HEAD "\0\0\0\0\0\0\0\0"
	static const struct {
		const char *bytes;
		uint32_t n;
	} frames[] = {
		{ "", 0 },
		{ HEAD, 8 },                                    /* no words */
		{ HEAD "/", 9 },                                /* not ended */
		{ HEAD "/\0", 10 },                             /* no number */
		{ HEAD "/\0000", 11 },                          /* no arguments */
		{ HEAD "/\0002\0true", 16 },                    /* fewer than it says */
		{ HEAD "/\000-1\0true", 17 },                   /* negative */
		{ HEAD "/\00018446744073709551617\0true", 35 }, /* too many */
		{ HEAD "/\0001\0true\0word", 21 },              /* no VARIABLE=VALUE */
		{ "\2\0\0\0\0\0\0\0/\0001\0true", 16 },         /* unknown flags */
	};

	for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++) {
		struct client *client = client_new();

		put(client, FRAME_RUN, frames[i].bytes, frames[i].n);
		check_refused(client, "malformed");
	}
}

static void random_bytes_end_in_a_refusal_or_nothing(void)
{
	uint64_t state = test_seed();

	for (int round = 0; round < 50; round++) {
		struct client *client = client_new();
		uint8_t bytes[512];

		for (size_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = (uint8_t)(test_random(&state) >> 32);
		/* Half of them are a frame that looks right at first. */
		if (round & 1) {
			struct frame_head head = { .kind = 1 + test_random(&state) % 4,
						   .bytes = (uint32_t)(test_random(&state) % 256) };

			memcpy(bytes, &head, sizeof(head));
		}
		send_all(client->fd, bytes, sizeof(bytes));
		client_free(client);
	}
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(a_command_has_its_arguments_environment_and_folder),
		CASE(a_second_command_may_follow_the_first),
		CASE(a_program_that_is_not_there_is_an_errno_with_a_sentence),
		CASE(input_reaches_the_command_and_ends_with_an_empty_frame),
		CASE(much_input_and_output_pass_unchanged),
		CASE(a_signal_passes_input_that_nobody_reads),
		CASE(a_terminal_has_its_size_and_echoes),
		CASE(input_of_a_terminal_ends_too),
		CASE(what_a_command_leaves_running_is_not_waited_for),
		CASE(a_hang_up_ends_the_whole_group),
		CASE(a_hang_up_ends_who_ignores_sigterm),
		CASE(a_hang_up_ends_a_command_that_writes_without_end),
		CASE(a_frame_that_is_too_long_ends_the_command),
		CASE(a_frame_of_unknown_kind_is_refused),
		CASE(a_second_command_at_once_is_refused),
		CASE(signals_and_sizes_that_cannot_be_are_refused),
		CASE(malformed_commands_are_refused),
		CASE(random_bytes_end_in_a_refusal_or_nothing),
	};

	return test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
