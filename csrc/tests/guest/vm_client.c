/* SPDX-License-Identifier: BSD-3-Clause
 * A client of a guest's agent: see vm_client.h. */
#include "tests/guest/vm_client.h"
#include "tests/check.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define HELLO "protocol=1\nhost=test\n"
#define DEADLINE_MS 20000

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

void client_send(struct client *client, const void *from, size_t bytes)
{
	for (size_t sent = 0; sent < bytes;) {
		ssize_t more =
		    send(client->fd, (const uint8_t *)from + sent, bytes - sent, MSG_NOSIGNAL);

		CHECK(more > 0);
		sent += (size_t)more;
	}
}

void put(struct client *client, uint32_t kind, const void *payload, uint32_t bytes)
{
	struct frame_head head = { .kind = kind, .bytes = bytes };

	client_send(client, &head, sizeof(head));
	client_send(client, payload, bytes);
}

uint32_t take(struct client *client)
{
	struct frame_head head;

	receive(client->fd, &head, sizeof(head));
	CHECK(head.bytes <= AGENT_PAYLOAD_BYTES_MAX);
	receive(client->fd, client->payload, head.bytes);
	client->bytes = head.bytes;
	return head.kind;
}

struct client *client_new(void)
{
	struct client *client = calloc(1, sizeof(*client));
	int ends[2];

	CHECK(client);
	/* Processes that commands leave behind are reparented to this process, which can then
	 * observe their end. */
	CHECK_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	client->agent = fork();
	CHECK(client->agent >= 0);
	if (!client->agent) {
		close(ends[0]);
		/* ECONNRESET: the client left bytes unread. */
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

void client_free(struct client *client)
{
	close(client->fd);
	CHECK_CHILD(client->agent);
	free(client);
}

void run_words(struct client *client, uint32_t flags, const char *words, size_t bytes)
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

void append(char text[TEXT_BYTES_MAX], const struct client *client)
{
	size_t used = strlen(text);

	CHECK(used + client->bytes < TEXT_BYTES_MAX);
	memcpy(text + used, client->payload, client->bytes);
	text[used + client->bytes] = '\0';
}

struct outcome finish(struct client *client)
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

pid_t take_pid(struct client *client)
{
	char text[TEXT_BYTES_MAX] = "";

	while (!strchr(text, '\n')) {
		CHECK_EQ(take(client), FRAME_STDOUT);
		append(text, client);
	}
	return (pid_t)strtol(text, NULL, 10);
}

int bury(pid_t pid)
{
	int status;

	CHECK(pid > 1);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	return status;
}
