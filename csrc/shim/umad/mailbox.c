/* SPDX-License-Identifier: BSD-3-Clause
 * Mailboxes: datagram sockets in a folder of the fabric, "HOST.mad.PID.N" of umad0 and "HOST.sm" of
 * issm0.  The name of a dead process's socket is removed by the next one that meets it. */
#define _GNU_SOURCE
#include "shim/umad/umad.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define FOLDER_BYTES 320u
#define TRIES 1000u

/* The folder, open; or a negative errno. */
static int open_folder(const struct nupa_fabric *fabric)
{
	char above[FOLDER_BYTES], path[FOLDER_BYTES + 8];
	int fd, rc = nupa_subnet_folder(fabric, above, sizeof(above));

	if (rc)
		return rc;
	snprintf(path, sizeof(path), "%s/.umad", above);
	if (mkdir(path, 0700) && errno != EEXIST)
		return -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* A path may be too long for a socket's name; that of the folder's descriptor never is. */
static void name_socket(int folder, const char *name, struct sockaddr_un *to)
{
	memset(to, 0, sizeof(*to));
	to->sun_family = AF_UNIX;
	snprintf(to->sun_path, sizeof(to->sun_path), "/proc/self/fd/%d/%.64s", folder, name);
}

static int open_socket(int flags)
{
	const int fd = (int)syscall(SYS_socket, AF_UNIX, SOCK_DGRAM | flags, 0);

	return fd < 0 ? -errno : fd;
}

static int bind_socket(int folder, int fd, const char *name)
{
	struct sockaddr_un to;

	name_socket(folder, name, &to);
	return syscall(SYS_bind, fd, &to, sizeof(to)) ? -errno : 0;
}

/* Whether somebody has the socket open. */
static bool is_alive(int folder, const char *name)
{
	struct sockaddr_un to;
	const int fd = open_socket(SOCK_CLOEXEC);
	bool alive;

	if (fd < 0)
		return false;
	name_socket(folder, name, &to);
	alive = !syscall(SYS_connect, fd, &to, sizeof(to));
	close(fd);
	return alive;
}

int nupa_mailbox_open(const struct nupa_fabric *fabric, uint32_t host, char *name, size_t bytes)
{
	const int folder = open_folder(fabric), fd = open_socket(SOCK_CLOEXEC | SOCK_NONBLOCK);
	int rc = folder < 0 ? folder : fd < 0 ? fd : -EADDRINUSE;

	for (uint32_t i = 0; rc == -EADDRINUSE && i < TRIES; i++) {
		snprintf(name, bytes, "%u.mad.%d.%u", host, getpid(), i);
		rc = bind_socket(folder, fd, name);
	}
	if (folder >= 0)
		close(folder);
	if (rc && fd >= 0)
		close(fd);
	return rc ? rc : fd;
}

void nupa_mailbox_close(const struct nupa_fabric *fabric, int fd, const char *name)
{
	const int folder = open_folder(fabric);

	if (folder >= 0) {
		(void)unlinkat(folder, name, 0);
		close(folder);
	}
	close(fd);
}

void nupa_mailbox_send(const struct nupa_fabric *fabric, uint32_t host,
		       const struct nupa_umad_message *message, const uint8_t *data)
{
	const int folder = open_folder(fabric), fd = open_socket(SOCK_CLOEXEC);
	const int listed = folder < 0 ? -1 : dup(folder);
	DIR *names = listed < 0 ? NULL : fdopendir(listed);
	char wanted[32];
	int length = snprintf(wanted, sizeof(wanted), "%u.mad.", host);

	for (struct dirent *entry; fd >= 0 && names && (entry = readdir(names));) {
		struct sockaddr_un to;

		if (strncmp(entry->d_name, wanted, (size_t)length) != 0)
			continue;
		name_socket(folder, entry->d_name, &to);
		if (nupa_umad_put(fd, message, data, &to, sizeof(to)) == -ECONNREFUSED)
			(void)unlinkat(folder, entry->d_name, 0);
	}
	if (names)
		closedir(names);
	else if (listed >= 0)
		close(listed);
	if (fd >= 0)
		close(fd);
	if (folder >= 0)
		close(folder);
}

/* Binds the socket of a subnet manager, unless a living one has the name. */
static int bind_sm(int folder, int fd, uint32_t host)
{
	char name[32];
	int rc;

	snprintf(name, sizeof(name), "%u.sm", host);
	rc = bind_socket(folder, fd, name);
	if (rc != -EADDRINUSE)
		return rc;
	if (is_alive(folder, name))
		return -EBUSY;
	(void)unlinkat(folder, name, 0);
	return bind_socket(folder, fd, name);
}

int nupa_mailbox_open_sm(const struct nupa_fabric *fabric, uint32_t host, int flags)
{
	const int folder = open_folder(fabric);
	int fd, rc;

	if (folder < 0)
		return folder;
	fd = open_socket((flags & O_CLOEXEC ? SOCK_CLOEXEC : 0) |
			 (flags & O_NONBLOCK ? SOCK_NONBLOCK : 0));
	rc = fd < 0 ? fd : bind_sm(folder, fd, host);
	close(folder);
	if (rc && fd >= 0)
		close(fd);
	return rc ? rc : fd;
}

bool nupa_mailbox_is_sm(const struct nupa_subnet *subnet, uint32_t host)
{
	const int folder = open_folder(subnet->fabric);
	char name[32];
	bool is;

	if (folder < 0)
		return false;
	snprintf(name, sizeof(name), "%u.sm", host);
	is = is_alive(folder, name);
	close(folder);
	return is;
}
