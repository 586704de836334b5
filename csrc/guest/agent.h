/* SPDX-License-Identifier: BSD-3-Clause
 * The agent of a guest runs commands for the client at the other end of a port, one at a time.  The
 * same words are in nupa/vm/agent/frames.py. */
#ifndef NUPA_VM_AGENT_H
#define NUPA_VM_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define AGENT_PAYLOAD_BYTES_MAX 65536u
/* Output is sent in frames of this size at most. */
#define AGENT_CHUNK_BYTES 32768u
/* Input that a command has not read yet; beyond it the port is not read. */
#define AGENT_STDIN_BYTES_MAX (1u << 20)
/* Words of a RUN frame: arguments and environment. */
#define AGENT_WORDS_MAX 8192u
/* From SIGTERM to SIGKILL, when the client has gone. */
#define AGENT_GRACE_MS 1000

enum frame_kind {
	/* from the host */
	FRAME_RUN = 1,
	FRAME_STDIN = 2,
	FRAME_SIGNAL = 3,
	FRAME_RESIZE = 4,
	/* from the guest */
	FRAME_HELLO = 16,
	FRAME_STDOUT = 17,
	FRAME_STDERR = 18,
	FRAME_EXIT = 19,
};

enum { RUN_TTY = 1 };

/* Before each payload; little-endian, as is the machine. */
struct frame_head {
	uint32_t kind;
	uint32_t bytes;
};
_Static_assert(sizeof(struct frame_head) == 8, "as on the wire");

/* A RUN frame taken apart; it points into the frame. */
struct order {
	bool tty;
	uint16_t rows, columns;
	char *cwd;
	char *argv[AGENT_WORDS_MAX + 1], *env[AGENT_WORDS_MAX + 1];
};

/* A process and its standard streams; -1: closed. */
struct command {
	pid_t pid;        /* its group's number too; 0: none */
	int pidfd;        /* readable once it has ended */
	int in, out, err; /* with a terminal *in* and *out* are its master */
	bool tty, in_end; /* in_end: *in* is to be closed after the queued input */
	bool hung_up;     /* no process has the terminal open: its master is kept until the end */
	bool ended;
	int status; /* as of waitpid(2), once it has ended */
};

/* Takes a RUN frame apart: false, it is malformed.  Writes into the payload. */
bool order_parse(struct order *order, uint8_t *payload, size_t bytes);

/* Starts it. 0, or -errno with a sentence in *why*. */
int command_start(struct command *command, const struct order *order, char *why, size_t why_bytes);

/* Sets a terminal's size; does nothing without one. */
void command_resize(const struct command *command, uint16_t rows, uint16_t columns);

/* Ends it and its group: SIGTERM, at a terminal SIGHUP, and SIGKILL after AGENT_GRACE_MS. Closes
 * all streams. */
void command_end(struct command *command);

/* Closes what is open, forgets the process. */
void command_close(struct command *command);

/* Serves one client after the other at *port*, each greeted with *hello*; calls *prepare*, unless
 * NULL, before each command.  Returns when the port itself has gone, with -errno. */
int agent_serve(int port, const char *hello, void (*prepare)(void));

#endif
