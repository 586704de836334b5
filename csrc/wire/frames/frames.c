// SPDX-License-Identifier: BSD-3-Clause
#include "wire/frames/frames.h"
#include "wire/frames/neighbour.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LENGTH_BYTES 4u
#define IN_BYTES (2 * (LENGTH_BYTES + NUPA_FRAME_MAX_BYTES))
#define OUT_BYTES (4u << 20)
#define READS_A_TURN 16
#define ASK_NS 200000000L /* of the first requests for a link address; then a second */
#define ASKS_FAST 5u
#define PACKET_MAX_BYTES 65507u /* UDP over IPv4 */

struct nupa_frames {
	struct nupa_frame_link link;
	nupa_frames_receive *receive;
	void *context;
	struct nupa_frames_counters counters;
	int listener, connection, timer, epoll;
	bool known;    /* link.remote_mac */
	uint32_t asks; /* unanswered */
	/* Bytes [0, in_bytes) were read.  Bytes [out_start, out_bytes) are to be written; as long
	 * as the link address is unknown they are whole frames that wait for it. */
	uint32_t in_bytes, out_start, out_bytes;
	bool watches_room; /* EPOLLOUT */
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	uint8_t in[IN_BYTES], reply[LENGTH_BYTES + NUPA_FRAME_MAX_BYTES], out[OUT_BYTES];
};

static int watch(struct nupa_frames *frames, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.fd = fd };

	return epoll_ctl(frames->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static void watch_room(struct nupa_frames *frames, bool wanted)
{
	struct epoll_event event = { .events = EPOLLIN | (wanted ? (uint32_t)EPOLLOUT : 0),
				     .data.fd = frames->connection };

	if (wanted != frames->watches_room)
		epoll_ctl(frames->epoll, EPOLL_CTL_MOD, frames->connection, &event);
	frames->watches_room = wanted;
}

static void set_timer(struct nupa_frames *frames, time_t s, long ns)
{
	const struct itimerspec after = { .it_value = { .tv_sec = s, .tv_nsec = ns } };

	timerfd_settime(frames->timer, 0, &after, NULL);
}

/* Starts anew: a guest that connects again may have another link address. */
static void disconnect(struct nupa_frames *frames)
{
	if (frames->connection >= 0) {
		close(frames->connection); /* leaves the epoll file, too */
		/* It was watched before, so there is room for it. */
		(void)watch(frames, frames->listener, EPOLLIN);
	}
	frames->connection = -1;
	frames->known = frames->watches_room = false;
	frames->in_bytes = frames->out_start = frames->out_bytes = 0;
	set_timer(frames, 0, 0);
}

static void flush(struct nupa_frames *frames)
{
	while (frames->out_start < frames->out_bytes) {
		ssize_t done =
		    send(frames->connection, frames->out + frames->out_start,
			 frames->out_bytes - frames->out_start, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0 && errno == EAGAIN) {
			watch_room(frames, true);
			return;
		}
		if (done < 0) {
			disconnect(frames);
			return;
		}
		frames->out_start += (uint32_t)done;
	}
	frames->out_start = frames->out_bytes = 0;
	watch_room(frames, false);
}

/* Room for a frame behind those that wait; NULL: there is none. */
static uint8_t *make_room(struct nupa_frames *frames, uint32_t bytes)
{
	uint32_t waiting = frames->out_bytes - frames->out_start;
	uint32_t length = htonl(bytes);

	if (waiting + LENGTH_BYTES + bytes > OUT_BYTES)
		return NULL;
	if (frames->out_bytes + LENGTH_BYTES + bytes > OUT_BYTES) {
		memmove(frames->out, frames->out + frames->out_start, waiting);
		frames->out_start = 0;
		frames->out_bytes = waiting;
	}
	uint8_t *at = frames->out + frames->out_bytes;
	memcpy(at, &length, LENGTH_BYTES);
	frames->out_bytes += LENGTH_BYTES + bytes;
	return at + LENGTH_BYTES;
}

/* Sends an answer or a request, in front of the frames that wait for the link address.  One that
 * does not go at once is lost: it is asked for again. */
static void send_now(struct nupa_frames *frames, uint32_t bytes)
{
	uint32_t length = htonl(bytes);

	if (frames->known) {
		uint8_t *at = make_room(frames, bytes);

		if (at) {
			memcpy(at, frames->reply + LENGTH_BYTES, bytes);
			flush(frames);
		}
		return;
	}
	memcpy(frames->reply, &length, LENGTH_BYTES);
	bytes += LENGTH_BYTES;
	ssize_t done = send(frames->connection, frames->reply, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
	/* The rest of a frame cannot be left out. */
	if (done >= 0 ? (uint32_t)done < bytes : errno != EAGAIN && errno != EINTR)
		disconnect(frames);
}

static void ask(struct nupa_frames *frames)
{
	if (frames->connection < 0 || frames->known)
		return;
	bool fast = frames->asks++ < ASKS_FAST;

	set_timer(frames, fast ? 0 : 1, fast ? ASK_NS : 0);
	send_now(frames, nupa_neighbour_ask(&frames->link, frames->reply + LENGTH_BYTES));
}

/* The frames that waited get the link address, and go. */
static void address_waiting(struct nupa_frames *frames)
{
	uint32_t at = frames->out_start, length;

	while (at < frames->out_bytes) {
		memcpy(&length, frames->out + at, LENGTH_BYTES);
		memcpy(frames->out + at + LENGTH_BYTES, frames->link.remote_mac, ETHER_ADDR_LEN);
		at += LENGTH_BYTES + ntohl(length);
	}
	frames->known = true;
	set_timer(frames, 0, 0);
	flush(frames);
}

static void take_frame(struct nupa_frames *frames, const uint8_t *frame, uint32_t bytes)
{
	struct nupa_frame_packet packet;
	bool learned;

	switch (nupa_frame_read(&frames->link, frame, bytes, &packet)) {
	case NUPA_FRAME_ROCE:
		frames->counters.received++;
		frames->receive(frames->context, &packet);
		return;
	case NUPA_FRAME_FOREIGN:
		frames->counters.foreign++;
		return;
	case NUPA_FRAME_MALFORMED:
		frames->counters.malformed++;
		return;
	case NUPA_FRAME_OTHER:
		break;
	}
	uint32_t answer = nupa_neighbour_answer(&frames->link, frame, bytes,
						frames->reply + LENGTH_BYTES, &learned);
	if (answer)
		send_now(frames, answer);
	if (learned && !frames->known && frames->connection >= 0)
		address_waiting(frames);
}

/* Takes the whole frames that were read; false: the stream has no frames. */
static bool take_frames(struct nupa_frames *frames)
{
	uint32_t at = 0, length;

	while (frames->in_bytes - at >= LENGTH_BYTES) {
		memcpy(&length, frames->in + at, LENGTH_BYTES);
		length = ntohl(length);
		if (!length || length > NUPA_FRAME_MAX_BYTES)
			return false;
		if (frames->in_bytes - at < LENGTH_BYTES + length)
			break;
		take_frame(frames, frames->in + at + LENGTH_BYTES, length);
		if (frames->connection < 0)
			return true; /* disconnected meanwhile */
		at += LENGTH_BYTES + length;
	}
	frames->in_bytes -= at;
	memmove(frames->in, frames->in + at, frames->in_bytes);
	return true;
}

static void read_frames(struct nupa_frames *frames)
{
	for (int i = 0; i < READS_A_TURN && frames->connection >= 0; i++) {
		ssize_t got = recv(frames->connection, frames->in + frames->in_bytes,
				   IN_BYTES - frames->in_bytes, MSG_DONTWAIT);

		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (got <= 0) {
			disconnect(frames);
			return;
		}
		frames->in_bytes += (uint32_t)got;
		if (!take_frames(frames)) {
			frames->counters.malformed++;
			disconnect(frames);
		}
	}
}

/* One guest at a time; a second waits in the queue of the listener, until the first has gone. */
static void accept_guest(struct nupa_frames *frames)
{
	int connection = accept4(frames->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (connection < 0)
		return;
	if (watch(frames, connection, EPOLLIN)) {
		close(connection);
		return;
	}
	epoll_ctl(frames->epoll, EPOLL_CTL_DEL, frames->listener, NULL);
	frames->connection = connection;
	frames->asks = 0;
	ask(frames);
}

void nupa_frames_turn(struct nupa_frames *frames)
{
	struct epoll_event events[4];
	uint64_t expirations;
	int n = epoll_wait(frames->epoll, events, sizeof(events) / sizeof(events[0]), 0);

	for (int i = 0; i < n; i++) {
		int fd = events[i].data.fd;

		if (fd == frames->listener) {
			accept_guest(frames);
		} else if (fd == frames->timer) {
			if (read(frames->timer, &expirations, sizeof(expirations)) > 0)
				ask(frames);
		} else if (fd == frames->connection) {
			if (events[i].events & EPOLLOUT && frames->known)
				flush(frames);
			if (events[i].events & ~(uint32_t)EPOLLOUT)
				read_frames(frames);
		}
	}
}

int nupa_frames_send(struct nupa_frames *frames, const struct nupa_frame_packet *packet)
{
	uint8_t head[NUPA_FRAME_HEAD_BYTES];

	if (packet->bytes > PACKET_MAX_BYTES)
		return -EMSGSIZE;
	if (frames->connection < 0) {
		frames->counters.dropped++;
		return -ENOTCONN;
	}
	uint32_t bytes = nupa_frame_head(&frames->link, packet, head);
	uint8_t *at = make_room(frames, bytes + packet->bytes);
	if (!at) {
		frames->counters.dropped++;
		return -ENOBUFS;
	}
	memcpy(at, head, bytes);
	memcpy(at + bytes, packet->data, packet->bytes);
	frames->counters.sent++;
	if (frames->known && !frames->watches_room)
		flush(frames);
	return 0;
}

/* Binds the listener; a socket that a former process left is removed. */
static int bind_socket(struct nupa_frames *frames)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	struct stat found;

	memcpy(name.sun_path, frames->path, sizeof(name.sun_path));
	if (!lstat(frames->path, &found)) {
		int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		if (probe < 0)
			return -errno;
		bool left = S_ISSOCK(found.st_mode) &&
			    connect(probe, (struct sockaddr *)&name, sizeof(name)) &&
			    errno == ECONNREFUSED;
		close(probe);
		if (!left)
			return -EADDRINUSE;
		if (unlink(frames->path))
			return -errno;
	}
	mode_t mask = umask(0177);
	int error = bind(frames->listener, (struct sockaddr *)&name, sizeof(name)) ? -errno : 0;
	umask(mask);
	if (error) {
		frames->path[0] = '\0'; /* it is not ours to remove */
		return error;
	}
	return listen(frames->listener, 1) ? -errno : 0;
}

static int open_files(struct nupa_frames *frames)
{
	frames->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	frames->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	frames->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (frames->listener < 0 || frames->timer < 0 || frames->epoll < 0)
		return -errno;
	int error = bind_socket(frames);
	if (!error)
		error = watch(frames, frames->listener, EPOLLIN);
	return error ? error : watch(frames, frames->timer, EPOLLIN);
}

int nupa_frames_open(struct nupa_frames **frames, const char *path, const uint8_t local[16],
		     const uint8_t remote[16], nupa_frames_receive *receive, void *context)
{
	if (!memcmp(local, remote, 16) || nupa_frame_is_ipv4(local) != nupa_frame_is_ipv4(remote))
		return -EINVAL;
	if (strlen(path) >= sizeof((*frames)->path))
		return -ENAMETOOLONG;
	struct nupa_frames *made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->receive = receive;
	made->context = context;
	made->connection = made->listener = made->timer = made->epoll = -1;
	memcpy(made->link.local, local, 16);
	memcpy(made->link.remote, remote, 16);
	nupa_frame_choose_mac(&made->link);
	memcpy(made->path, path, strlen(path));
	int error = open_files(made);
	if (error) {
		if (error == -EADDRINUSE)
			made->path[0] = '\0';
		nupa_frames_close(made);
		return error;
	}
	*frames = made;
	return 0;
}

void nupa_frames_close(struct nupa_frames *frames)
{
	const int files[] = { frames->connection, frames->listener, frames->timer, frames->epoll };

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (files[i] >= 0)
			close(files[i]);
	if (frames->path[0])
		unlink(frames->path);
	free(frames);
}

int nupa_frames_fd(const struct nupa_frames *frames)
{
	return frames->epoll;
}

bool nupa_frames_reachable(const struct nupa_frames *frames)
{
	return frames->connection >= 0 && frames->known;
}

const struct nupa_frames_counters *nupa_frames_counters(const struct nupa_frames *frames)
{
	return &frames->counters;
}
