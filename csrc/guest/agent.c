// SPDX-License-Identifier: BSD-3-Clause
/*
 * The agent: passes frames from a port to a command, and its output back as frames.
 *
 * The port is a virtio-serial port, or a socket in tests.  A virtio-serial port stays when its
 * client goes: until the next client has come it reports POLLHUP, read(2) returns 0, and write(2)
 * blocks.  So a blocking HELLO waits for a client.
 */
#include "guest/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Ends a terminal's input: ^D. */
#define END_OF_INPUT 4
#define WHY_BYTES 512u
/* A frame of output, and the EXIT, for which there must always be room behind it. */
#define OUTPUT_BYTES (sizeof(struct frame_head) + AGENT_CHUNK_BYTES)
#define EXIT_BYTES (sizeof(struct frame_head) + sizeof(int32_t) + WHY_BYTES)

struct buffer {
	size_t start, end; /* of its contents, as offsets */
};

struct agent {
	int port;
	bool refused; /* the client broke the protocol: its input is ignored */
	void (*prepare)(void);
	struct command command;
	struct buffer rx, tx, in;
	uint8_t rx_bytes[sizeof(struct frame_head) + AGENT_PAYLOAD_BYTES_MAX];
	uint8_t tx_bytes[2 * OUTPUT_BYTES + EXIT_BYTES];
	uint8_t in_bytes[AGENT_STDIN_BYTES_MAX + AGENT_PAYLOAD_BYTES_MAX];
	struct order order;
};

static bool buffer_empty(const struct buffer *buffer)
{
	return buffer->start == buffer->end;
}

/* Takes from its beginning; an empty one begins at 0 again. */
static void buffer_drop(struct buffer *buffer, size_t bytes)
{
	buffer->start += bytes;
	if (buffer_empty(buffer))
		buffer->start = buffer->end = 0;
}

/* Moves its content to the beginning of its memory. */
static void buffer_pack(struct buffer *buffer, uint8_t *memory)
{
	memmove(memory, memory + buffer->start, buffer->end - buffer->start);
	buffer->end -= buffer->start;
	buffer->start = 0;
}

static bool would_block(void)
{
	return errno == EAGAIN || errno == EINTR;
}

/* Queues a frame.  There is room: callers of output ask tx_has_room(), and EXIT has its own. */
static void send_frame(struct agent *agent, enum frame_kind kind, const void *first,
		       size_t first_bytes, const void *second, size_t second_bytes)
{
	struct frame_head head = { .kind = kind, .bytes = (uint32_t)(first_bytes + second_bytes) };

	buffer_pack(&agent->tx, agent->tx_bytes);
	uint8_t *at = agent->tx_bytes + agent->tx.end;
	memcpy(at, &head, sizeof(head));
	memcpy(at + sizeof(head), first, first_bytes);
	if (second_bytes)
		memcpy(at + sizeof(head) + first_bytes, second, second_bytes);
	agent->tx.end += sizeof(head) + head.bytes;
}

static bool tx_has_room(const struct agent *agent)
{
	size_t used = agent->tx.end - agent->tx.start;

	return sizeof(agent->tx_bytes) - used >= OUTPUT_BYTES + EXIT_BYTES;
}

static void send_exit(struct agent *agent, int32_t status, const char *why)
{
	send_frame(agent, FRAME_EXIT, &status, sizeof(status), why, strlen(why));
}

/* Ends the command of a client that breaks the protocol, and ignores its further input. */
static void refuse(struct agent *agent, const char *what, uint32_t kind, uint32_t bytes)
{
	char why[WHY_BYTES];

	snprintf(why, sizeof(why), "%s: a frame of kind %u with %u bytes", what, kind, bytes);
	fprintf(stderr, "nupa: agent: %s\n", why);
	command_end(&agent->command);
	agent->in = (struct buffer){ 0 };
	agent->tx = (struct buffer){ 0 }; /* there is room for an EXIT, and it is the last frame */
	send_exit(agent, -EPROTO, why);
	agent->refused = true;
}

static void run(struct agent *agent, uint8_t *payload, uint32_t bytes)
{
	char why[WHY_BYTES] = "";

	if (agent->command.pid) {
		refuse(agent, "a command runs here already", FRAME_RUN, bytes);
		return;
	}
	if (!order_parse(&agent->order, payload, bytes)) {
		refuse(agent, "malformed", FRAME_RUN, bytes);
		return;
	}
	if (agent->prepare)
		agent->prepare();
	agent->in = (struct buffer){ 0 };
	int error = command_start(&agent->command, &agent->order, why, sizeof(why));
	if (error)
		send_exit(agent, error, why);
}

static void queue_input(struct agent *agent, const uint8_t *payload, uint32_t bytes)
{
	static const uint8_t end = END_OF_INPUT;
	struct command *command = &agent->command;

	if (command->in < 0 || command->in_end)
		return; /* it has stopped reading */
	if (!bytes && !command->tty) {
		command->in_end = true;
		return;
	}
	if (!bytes) {
		payload = &end;
		bytes = 1;
	}
	buffer_pack(&agent->in, agent->in_bytes);
	memcpy(agent->in_bytes + agent->in.end, payload, bytes);
	agent->in.end += bytes;
}

static void take_frame(struct agent *agent, struct frame_head head, uint8_t *payload)
{
	struct command *command = &agent->command;
	uint32_t number;
	uint16_t size[2];

	switch (head.kind) {
	case FRAME_RUN:
		run(agent, payload, head.bytes);
		return;
	case FRAME_STDIN:
		queue_input(agent, payload, head.bytes);
		return;
	case FRAME_SIGNAL:
		if (head.bytes != sizeof(number))
			break;
		memcpy(&number, payload, sizeof(number));
		if (number == 0 || number >= NSIG)
			break;
		if (command->pid && !command->ended)
			kill(-command->pid, (int)number);
		return;
	case FRAME_RESIZE:
		if (head.bytes != sizeof(size))
			break;
		memcpy(size, payload, sizeof(size));
		command_resize(command, size[0], size[1]);
		return;
	default:
		break;
	}
	refuse(agent, "not of this protocol", head.kind, head.bytes);
}

static bool input_is_full(const struct agent *agent)
{
	return agent->in.end - agent->in.start >= AGENT_STDIN_BYTES_MAX;
}

/* Takes the complete frames out of the received bytes. */
static void take_frames(struct agent *agent)
{
	struct frame_head head;

	while (!agent->refused && !input_is_full(agent) &&
	       agent->rx.end - agent->rx.start >= sizeof(head)) {
		memcpy(&head, agent->rx_bytes + agent->rx.start, sizeof(head));
		if (head.bytes > AGENT_PAYLOAD_BYTES_MAX) {
			refuse(agent, "too long", head.kind, head.bytes);
			break;
		}
		if (agent->rx.end - agent->rx.start < sizeof(head) + head.bytes)
			break;
		take_frame(agent, head, agent->rx_bytes + agent->rx.start + sizeof(head));
		buffer_drop(&agent->rx, sizeof(head) + head.bytes);
	}
	if (agent->refused)
		agent->rx = (struct buffer){ 0 };
	buffer_pack(&agent->rx, agent->rx_bytes);
}

/* False: the client has gone. */
static bool read_port(struct agent *agent)
{
	ssize_t got = read(agent->port, agent->rx_bytes + agent->rx.end,
			   sizeof(agent->rx_bytes) - agent->rx.end);

	if (got <= 0)
		return got < 0 && would_block();
	agent->rx.end += (size_t)got;
	take_frames(agent);
	return true;
}

static bool write_port(struct agent *agent)
{
	ssize_t sent =
	    write(agent->port, agent->tx_bytes + agent->tx.start, agent->tx.end - agent->tx.start);

	if (sent < 0)
		return would_block();
	buffer_drop(&agent->tx, (size_t)sent);
	return true;
}

static void close_input(struct command *command)
{
	if (command->tty)
		return; /* its output comes from the same descriptor */
	close(command->in);
	command->in = -1;
}

static void write_input(struct agent *agent)
{
	struct command *command = &agent->command;

	if (!buffer_empty(&agent->in)) {
		ssize_t sent = write(command->in, agent->in_bytes + agent->in.start,
				     agent->in.end - agent->in.start);

		if (sent < 0 && would_block())
			return;
		if (sent < 0) {
			agent->in = (struct buffer){ 0 }; /* it will not be read */
			close_input(command);
			return;
		}
		buffer_drop(&agent->in, (size_t)sent);
	}
	if (command->in_end && buffer_empty(&agent->in))
		close_input(command);
}

/* Forwards the command's output, if there is room.  True: there was no more of it. */
static bool read_output(struct agent *agent, int *fd, enum frame_kind kind)
{
	uint8_t chunk[AGENT_CHUNK_BYTES];

	if (*fd < 0)
		return true;
	if (!tx_has_room(agent))
		return false;
	ssize_t got = read(*fd, chunk, sizeof(chunk));
	if (got > 0) {
		send_frame(agent, kind, chunk, (size_t)got, NULL, 0);
		return false;
	}
	if (got < 0 && would_block())
		return true;
	if (agent->command.tty) {
		/* Closing its master now would kill by SIGHUP a process that is about to exit. */
		agent->command.hung_up = true;
		return true;
	}
	close(*fd);
	*fd = -1;
	return true;
}

/* The EXIT, once the command has ended and all its output has been sent.  Processes that it left
 * running may still hold its streams open: these are not waited for. */
static void check_exit(struct agent *agent)
{
	struct command *command = &agent->command;

	if (!command->ended)
		command->ended = waitpid(command->pid, &command->status, WNOHANG) == command->pid;
	if (!command->ended || !read_output(agent, &command->out, FRAME_STDOUT) ||
	    !read_output(agent, &command->err, FRAME_STDERR))
		return;
	send_exit(agent, command->status, "");
	command_close(command);
	agent->in = (struct buffer){ 0 };
}

/* Waits for and does one round of work.  False: the client has gone. */
static bool work(struct agent *agent)
{
	struct command *command = &agent->command;
	bool room = tx_has_room(agent);
	bool input = !buffer_empty(&agent->in) || command->in_end;
	enum { PORT, ENDED, IN, OUT, ERR, N };
	struct pollfd fds[N] = {
		[PORT] = { .fd = agent->port,
			   .events = (short)((input_is_full(agent) ? 0 : POLLIN) |
					     (buffer_empty(&agent->tx) ? 0 : POLLOUT)) },
		/* Nothing to wait for: its end is known, and only its output has to be sent. */
		[ENDED] = { .fd = command->ended ? -1 : command->pidfd, .events = POLLIN },
		[IN] = { .fd = input ? command->in : -1, .events = POLLOUT },
		[OUT] = { .fd = room && !command->hung_up ? command->out : -1, .events = POLLIN },
		[ERR] = { .fd = room ? command->err : -1, .events = POLLIN },
	};

	/* A command that has ended may have no output left: then no descriptor reports it. */
	if (poll(fds, N, command->ended && room ? 0 : -1) < 0)
		return errno == EINTR;
	if (fds[PORT].revents & POLLIN && !read_port(agent))
		return false;
	if (fds[PORT].revents & POLLOUT && !write_port(agent))
		return false;
	if (fds[PORT].revents & (POLLHUP | POLLERR | POLLNVAL) && !(fds[PORT].revents & POLLIN))
		return false;
	if (!command->pid) /* none, or refused just now */
		return true;
	if (fds[IN].revents && command->in >= 0)
		write_input(agent);
	if (fds[OUT].revents)
		read_output(agent, &command->out, FRAME_STDOUT);
	if (fds[ERR].revents)
		read_output(agent, &command->err, FRAME_STDERR);
	take_frames(agent); /* which had to wait for room for input */
	if (command->pid && (command->ended || fds[ENDED].revents))
		check_exit(agent);
	return true;
}

/* Discards unread input of the last client. */
static void drain(struct agent *agent)
{
	while (read(agent->port, agent->rx_bytes, sizeof(agent->rx_bytes)) > 0)
		;
}

static int greet(int port, const char *hello)
{
	struct frame_head head = { .kind = FRAME_HELLO, .bytes = (uint32_t)strlen(hello) };
	uint8_t frame[sizeof(head) + AGENT_CHUNK_BYTES];
	size_t bytes = sizeof(head) + head.bytes, sent = 0;

	if (bytes > sizeof(frame))
		return -EMSGSIZE;
	memcpy(frame, &head, sizeof(head));
	memcpy(frame + sizeof(head), hello, head.bytes);
	if (fcntl(port, F_SETFL, 0))
		return -errno;
	while (sent < bytes) {
		ssize_t got = write(port, frame + sent, bytes - sent);

		if (got < 0 && errno != EINTR)
			return -errno;
		sent += got > 0 ? (size_t)got : 0;
	}
	return fcntl(port, F_SETFL, O_NONBLOCK) ? -errno : 0;
}

int agent_serve(int port, const char *hello, void (*prepare)(void))
{
	static struct agent agent; /* megabytes: too much for a stack */
	int error;

	signal(SIGPIPE, SIG_IGN);
	while (!(error = greet(port, hello))) {
		agent.port = port;
		agent.prepare = prepare;
		agent.refused = false;
		agent.rx = agent.tx = agent.in = (struct buffer){ 0 };
		agent.command = (struct command){ .pidfd = -1, .in = -1, .out = -1, .err = -1 };
		while (work(&agent))
			;
		command_end(&agent.command);
		drain(&agent);
	}
	return error;
}
