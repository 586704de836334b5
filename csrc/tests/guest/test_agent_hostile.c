/* SPDX-License-Identifier: BSD-3-Clause
 * The agent of a guest (vm/agent.h) and clients that break its protocol. */
#include "tests/support/runner.h"
#include "tests/guest/vm_client.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* After a refusal comes an EXIT with EPROTO, and nothing is taken until the client has gone.  The
 * half of the socket that is still open then gets the HELLO of the next client. */
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

TEST(a_frame_that_is_too_long_ends_the_command)
{
	struct client *client = client_new();
	struct frame_head head = { .kind = FRAME_STDIN, .bytes = AGENT_PAYLOAD_BYTES_MAX + 1 };

	RUN(client, 0, SH("sleep 1000 & echo $!; wait"));
	pid_t child = take_pid(client);
	client_send(client, &head, sizeof(head));
	check_refused(client, "too long");
	CHECK_EQ(WTERMSIG(bury(child)), SIGTERM);
}

TEST(a_frame_of_unknown_kind_is_refused)
{
	static const uint32_t kinds[] = { 0, 5, FRAME_HELLO, FRAME_EXIT, UINT32_MAX };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct client *client = client_new();

		put(client, kinds[i], "x", 1);
		check_refused(client, "not of this protocol");
	}
}

TEST(a_second_command_at_once_is_refused)
{
	struct client *client = client_new();

	RUN(client, 0, SH("sleep 1000"));
	RUN(client, 0, "true");
	check_refused(client, "a command runs here already");
}

TEST(signals_and_sizes_that_cannot_be_are_refused)
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

TEST(malformed_commands_are_refused)
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

TEST(random_bytes_end_in_a_refusal_or_nothing)
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
		client_send(client, bytes, sizeof(bytes));
		client_free(client);
	}
}
