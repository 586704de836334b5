/* SPDX-License-Identifier: BSD-3-Clause
 * A client of a guest's agent, which runs behind a socket. */
#ifndef NUPA_TESTS_VM_CLIENT_H
#define NUPA_TESTS_VM_CLIENT_H

#include "guest/agent.h"

#include <stdint.h>
#include <sys/types.h>

#define TEXT_BYTES_MAX 8192
#define SH(script) "sh\0-c\0" script

struct client {
	int fd;
	pid_t agent;
	uint32_t bytes; /* of the payload that came last */
	uint8_t payload[AGENT_PAYLOAD_BYTES_MAX];
};

/* The output of a command, and its end. */
struct outcome {
	char out[TEXT_BYTES_MAX], err[TEXT_BYTES_MAX];
	int32_t status;
	char why[TEXT_BYTES_MAX];
};

/* A client that has been greeted. */
struct client *client_new(void);
/* Hangs up.  The agent has ended its command by then, and ends as no other client can come. */
void client_free(struct client *client);

/* Sends bytes as they are. */
void client_send(struct client *client, const void *from, size_t bytes);
/* Sends a frame with that payload. */
void put(struct client *client, uint32_t kind, const void *payload, uint32_t bytes);
/* Takes the next frame: its kind. */
uint32_t take(struct client *client);

/* Runs *words*, NUL between them, with flags, in the folder /, with PATH and WORD=value. */
void run_words(struct client *client, uint32_t flags, const char *words, size_t bytes);
#define RUN(client, flags, words) run_words(client, flags, words, sizeof(words))

/* Text gets what came last. */
void append(char text[TEXT_BYTES_MAX], const struct client *client);
/* All that comes until the EXIT. */
struct outcome finish(struct client *client);
/* The number that a command prints first. */
pid_t take_pid(struct client *client);
/* Waits for the end of an orphan of ours: its wait status. */
int bury(pid_t pid);

#endif
