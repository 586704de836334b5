/* SPDX-License-Identifier: BSD-3-Clause
 * The doorbell of a process: as a client of an ivshmem server, or from the guest's nupa-guest.
 * Nothing that comes from there is believed unchecked; what is wrong with it ends the doorbell. */
#include "segment/bell.h"

#include "base/atomics.h"
#include "base/explain.h"
#include "segment/bell_guest.h"
#include "segment/owner.h"
#include "segment/segment_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define PROTOCOL_VERSION 0
#define MEMORY (-1)
#define FILES_MAX 2
#define HANDSHAKE_S 2
/* Clients that are there already are announced first. */
#define HANDSHAKE_MESSAGES_MAX (NUPA_BELL_NUMBERS + 8u)

struct message {
	int64_t value;
	int files[FILES_MAX]; /* -1: none */
};

static void close_files(struct message *message)
{
	for (int i = 0; i < FILES_MAX; i++) {
		if (message->files[i] >= 0)
			close(message->files[i]);
		message->files[i] = -1;
	}
}

static void take_files(struct message *message, struct msghdr *header)
{
	struct cmsghdr *head = CMSG_FIRSTHDR(header);

	if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS)
		memcpy(message->files, CMSG_DATA(head), head->cmsg_len - CMSG_LEN(0));
}

/* 0 with a message whose files are the caller's, -EAGAIN: none has come, or another -errno: there
 * will be no more. */
static int receive(int fd, int flags, struct message *message)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(message->files))];
	} control;
	struct iovec iov = { &message->value, sizeof(message->value) };
	struct msghdr header = { .msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = sizeof(control.bytes) };
	ssize_t n;

	memset(message->files, 0xff, sizeof(message->files));
	do
		n = recvmsg(fd, &header, flags | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	take_files(message, &header);
	if (n == sizeof(message->value) && !(header.msg_flags & MSG_CTRUNC))
		return 0;
	close_files(message);
	return n ? -EPROTO : -ECONNRESET;
}

/* A peer has come, or with file -1 gone. */
static void note_peer(struct nupa_bell *bell, int64_t number, int file)
{
	if (number < 0 || number >= NUPA_BELL_NUMBERS) {
		if (file >= 0)
			close(file);
		return;
	}
	pthread_mutex_lock(&bell->mutex);
	if (bell->peers[number] >= 0)
		close(bell->peers[number]);
	bell->peers[number] = file;
	pthread_mutex_unlock(&bell->mutex);
}

static bool same_file(int a, int b)
{
	struct stat first, second;

	return !fstat(a, &first) && !fstat(b, &second) && first.st_dev == second.st_dev &&
	       first.st_ino == second.st_ino;
}

/* After the version come our number, the memory, the others, at last our own eventfd. */
static int greet_server(struct nupa_bell *bell, const struct nupa_fabric *fabric)
{
	struct message message;
	int64_t own;
	int error = receive(bell->server, 0, &message);

	own = message.value;
	if (!error)
		close_files(&message);
	if (!error && (own < 0 || own >= NUPA_BELL_NUMBERS))
		error = -EPROTO;
	if (!error)
		error = receive(bell->server, 0, &message);
	if (error)
		return error;
	if (message.value != MEMORY || message.files[0] < 0)
		error = -EPROTO;
	else if (!same_file(message.files[0], fabric->fd))
		error = -EXDEV;
	close_files(&message);
	for (uint32_t n = 0; !error && n < HANDSHAKE_MESSAGES_MAX; n++) {
		error = receive(bell->server, 0, &message);
		if (error)
			break;
		if (message.value == own && message.files[0] >= 0) {
			bell->event = message.files[0];
			bell->number = (uint32_t)own + 1;
			return 0;
		}
		note_peer(bell, message.value, message.files[0]);
	}
	return error ? error : -EPROTO;
}

/* nupa-guest's message goes on; its files came with its beginning. */
static int greet_guest(struct nupa_bell *bell, const struct nupa_fabric *fabric,
		       struct message *first)
{
	struct message second;
	int error = receive(bell->server, 0, &second);
	void *registers;

	if (error)
		return error;
	close_files(&second);
	if (second.value < 0 || second.value > UINT16_MAX || first->files[0] < 0 ||
	    first->files[1] < 0)
		return -EPROTO;
	if (!fabric->device)
		return -EXDEV;
	registers = mmap(NULL, IVSHMEM_REGISTERS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
			 first->files[1], 0);
	if (registers == MAP_FAILED)
		return -errno;
	bell->registers = registers;
	bell->event = first->files[0];
	first->files[0] = -1;
	bell->number = (uint32_t)second.value + 1;
	close(bell->server);
	bell->server = -1;
	return 0;
}

static int greet(struct nupa_bell *bell, const struct nupa_fabric *fabric)
{
	const struct timeval patience = { .tv_sec = HANDSHAKE_S };
	struct message first;
	int error;

	if (setsockopt(bell->server, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)))
		return -errno;
	error = receive(bell->server, 0, &first);
	if (error)
		return error;
	if (first.value == NUPA_BELL_GUEST_MAGIC)
		error = greet_guest(bell, fabric, &first);
	else if (first.value == PROTOCOL_VERSION)
		error = greet_server(bell, fabric);
	else
		error = -EPROTO;
	close_files(&first);
	return error;
}

/* A socket that is connected to our own user's process at *path*: or -errno.  A server that does
 * not accept is not waited for. */
static int connect_to(const char *path, uid_t *user)
{
	const struct timeval patience = { .tv_sec = HANDSHAKE_S };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct ucred who;
	socklen_t bytes = sizeof(who);
	int fd, error = 0;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) ||
	    connect(fd, (const struct sockaddr *)&address, sizeof(address)) ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes))
		error = -errno;
	else if (!nupa_owner_is_us(who.uid)) {
		*user = who.uid;
		error = -EPERM;
	}
	if (!error)
		return fd;
	close(fd);
	return error;
}

struct nupa_bell *nupa_bell_open(const struct nupa_fabric *fabric, const char *path, char *why,
				 size_t why_bytes)
{
	struct nupa_bell *bell = calloc(1, sizeof(*bell));
	uid_t stranger = geteuid();
	int error = bell ? 0 : -ENOMEM;

	if (bell) {
		memset(bell->peers, 0xff, sizeof(bell->peers));
		pthread_mutex_init(&bell->mutex, NULL);
		bell->event = -1;
		bell->server = error = connect_to(path, &stranger);
		if (bell->server >= 0)
			error = greet(bell, fabric);
	}
	if (!error)
		return bell;
	nupa_bell_close(bell);
	if (stranger != geteuid())
		nupa_explain(error, why, why_bytes,
			     "the doorbell at %s is served by user %u, and this process is user "
			     "%u's: it is refused",
			     path, stranger, geteuid());
	else
		nupa_explain(error, why, why_bytes,
			     error == -EXDEV ? "the doorbell at %s is not that of fabric %s (%s)"
					     : "no doorbell at %s for fabric %s: %s",
			     path, nupa_fabric_name(fabric), strerror(-error));
	return NULL;
}

void nupa_bell_close(struct nupa_bell *bell)
{
	if (!bell)
		return;
	for (uint32_t i = 0; i < NUPA_BELL_NUMBERS; i++)
		if (bell->peers[i] >= 0)
			close(bell->peers[i]);
	if (bell->event >= 0)
		close(bell->event);
	if (bell->server >= 0)
		close(bell->server);
	if (bell->registers)
		munmap((void *)(uintptr_t)bell->registers, IVSHMEM_REGISTERS_BYTES);
	pthread_mutex_destroy(&bell->mutex);
	free(bell);
}

void nupa_bell_forget_in_child(struct nupa_fabric *fabric)
{
	struct nupa_bell *bell = fabric->bell;

	if (!bell)
		return;
	fabric->bell = NULL;
	pthread_mutex_init(&bell->mutex, NULL); /* another thread of the parent may have had it */
	nupa_bell_close(bell);
}

void nupa_bell_hear(struct nupa_bell *bell)
{
	struct message message;
	int error = 0;

	while (bell->server >= 0 && nupa_load_relaxed(&bell->number)) {
		error = receive(bell->server, MSG_DONTWAIT, &message);
		if (error == -EAGAIN)
			return;
		if (error) {
			/* Clients that are there can still be rung; later ones cannot. */
			nupa_store_relaxed(&bell->number, 0);
			return;
		}
		note_peer(bell, message.value, message.files[0]);
		message.files[0] = -1;
		close_files(&message);
	}
}

static bool ring_peer(struct nupa_bell *bell, uint32_t number)
{
	const uint64_t one = 1;
	int file;

	pthread_mutex_lock(&bell->mutex);
	file = bell->peers[number];
	if (file >= 0)
		(void)!write(file, &one, sizeof(one)); /* full: it has been rung */
	pthread_mutex_unlock(&bell->mutex);
	return file >= 0;
}

bool nupa_bell_ring(struct nupa_bell *bell, uint32_t number)
{
	const uint64_t one = 1;

	if (number == 0 || number > UINT16_MAX + 1u)
		return false;
	if (number == nupa_load_relaxed(&bell->number)) {
		(void)!write(bell->event, &one, sizeof(one));
		return true;
	}
	if (bell->registers) {
		bell->registers[IVSHMEM_DOORBELL / sizeof(*bell->registers)] = (number - 1) << 16;
		return true;
	}
	if (number > NUPA_BELL_NUMBERS)
		return false;
	if (ring_peer(bell, number - 1))
		return true;
	nupa_bell_hear(bell); /* it may just have come */
	return ring_peer(bell, number - 1);
}

uint32_t nupa_bell_number(const struct nupa_fabric *fabric)
{
	return fabric->bell ? nupa_load_relaxed(&fabric->bell->number) : 0;
}

void nupa_bell_ring_slot(struct nupa_fabric *fabric, const struct nupa_slot *slot)
{
	/* P3: the news was stored before, by a full fence. */
	if (fabric->bell && nupa_load_seq(&slot->asleep))
		nupa_bell_ring(fabric->bell, nupa_load_relaxed(&slot->doorbell));
}
