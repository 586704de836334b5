/* SPDX-License-Identifier: BSD-3-Clause
 * Files and sockets that are opened by name: ours are taken, all others are refused and named. */
#define _GNU_SOURCE
#include "segment/bell.h"
#include "tests/support/end.h"
#include "segment/owner.h"
#include "segment/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define STRANGER 65534u

static char folder[] = "/dev/shm/nupa-test-owner-XXXXXX";
static char path[64], other[64], why[512];

static void in_a_folder(void (*test)(const struct nupa_fabric *fabric))
{
	struct nupa_fabric *fabric = test_fabric();
	const uint64_t bytes = fabric->geometry.arenas_off;
	int fd;

	CHECK(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/fabric", folder);
	snprintf(other, sizeof(other), "%s/other", folder);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	CHECK_EQ(ftruncate(fd, (off_t)fabric->geometry.segment_bytes), 0);
	CHECK_EQ(pwrite(fd, fabric->sb, bytes, 0), bytes);
	close(fd);
	test(fabric);
	unlink(path);
	unlink(other);
	CHECK_EQ(rmdir(folder), 0);
	nupa_fabric_put(fabric);
}

static int try_open(const char *at)
{
	struct nupa_fabric *fabric = NULL;
	int rc = nupa_fabric_open(at, &fabric, why, sizeof(why));

	if (fabric)
		nupa_fabric_put(fabric);
	return rc;
}

/* Refused, with the path, its owner and *text* in what is said. */
static void refused(const char *at, const char *text)
{
	char owner[32];
	struct stat st;

	CHECK_EQ(lstat(at, &st), 0);
	snprintf(owner, sizeof(owner), "user %u", st.st_uid);
	CHECK_EQ(try_open(at), -EPERM);
	CHECK(strstr(why, at) && strstr(why, owner) && strstr(why, text));
}

/* --- segments --------------------------------------------------------------------------- */

static void look_at_names(const struct nupa_fabric *fabric)
{
	char proc[64];

	CHECK_EQ(try_open(path), 0);
	CHECK_EQ(symlink(path, other), 0);
	refused(other, "symbolic link");
	CHECK_EQ(unlink(other), 0);
	CHECK_EQ(link(path, other), 0);
	refused(other, "2 hard links");
	refused(path, "2 hard links");
	CHECK_EQ(unlink(other), 0);
	CHECK_EQ(try_open(path), 0);
	/* The kernel's own link, as to the memory of a fabric without a name. */
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fabric->fd);
	CHECK_EQ(try_open(proc), 0);
}

TEST(a_link_to_a_fabric_is_refused)
{
	in_a_folder(look_at_names);
}

static void look_at_modes(const struct nupa_fabric *fabric)
{
	static const mode_t open_to_others[] = { 0604, 0640, 0602, 0620, 0666, 0777 };
	struct stat st;
	char mode[16];

	for (size_t i = 0; i < sizeof(open_to_others) / sizeof(open_to_others[0]); i++) {
		CHECK_EQ(chmod(path, open_to_others[i]), 0);
		snprintf(mode, sizeof(mode), "mode %04o", open_to_others[i]);
		refused(path, mode);
	}
	CHECK_EQ(chmod(path, 0600), 0);
	CHECK_EQ(try_open(path), 0);
	CHECK_EQ(fstat(fabric->fd, &st), 0);
	CHECK_EQ(st.st_mode & 07777, 0600);
}

TEST(a_fabric_that_is_open_to_others_is_refused)
{
	in_a_folder(look_at_modes);
}

static void look_at_owners(const struct nupa_fabric *fabric)
{
	(void)fabric;
	CHECK_EQ(chown(path, STRANGER, (gid_t)-1), 0);
	refused(path, "belongs to user 65534");
	/* As a program of `nupa run` does. */
	CHECK_EQ(setenv("NUPA_FABRIC", path, 1), 0);
	CHECK(!nupa_get_device_list(NULL));
	CHECK_EQ(errno, EPERM);
	CHECK_EQ(symlink(path, other), 0);
	CHECK_EQ(setenv("NUPA_FABRIC", other, 1), 0);
	CHECK(!nupa_get_device_list(NULL));
	CHECK_EQ(errno, EPERM);
}

TEST(another_users_fabric_is_refused)
{
	if (geteuid() == 0)
		in_a_folder(look_at_owners);
	else
		puts("not done: only root can give a file away");
}

/* --- user namespaces -------------------------------------------------------------------- */

static void write_text(const char *file, const char *text)
{
	int fd = open(file, O_WRONLY | O_CLOEXEC);

	CHECK(fd >= 0);
	CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void look_from_a_namespace(const struct nupa_fabric *fabric)
{
	char map[64];
	pid_t child;
	int status;

	(void)fabric;
	snprintf(map, sizeof(map), "0 %u 1", geteuid());
	child = fork();
	if (child == 0) {
		if (unshare(CLONE_NEWUSER))
			_exit(77);
		/* No user has a number in this namespace yet, so the file's owner is unknown. */
		CHECK_EQ(try_open(path), -EPERM);
		write_text("/proc/self/uid_map", map);
		CHECK_EQ(geteuid(), 0);
		CHECK_EQ(try_open(path), 0);
		_exit(0);
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
	if (WEXITSTATUS(status) == 77)
		puts("not done: no user namespaces here");
}

TEST(a_user_namespace_must_map_its_user)
{
	in_a_folder(look_from_a_namespace);
}

/* --- doorbells -------------------------------------------------------------------------- */

static int listener_at(const char *at, int backlog)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(address.sun_path, at, strlen(at));
	CHECK(fd >= 0);
	CHECK_EQ(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	CHECK_EQ(listen(fd, backlog), 0);
	return fd;
}

static void call_a_stranger(const struct nupa_fabric *fabric)
{
	int ready[2], status;
	pid_t child;
	char byte;

	CHECK_EQ(chown(folder, STRANGER, (gid_t)-1), 0);
	CHECK_EQ(pipe(ready), 0);
	child = fork();
	if (child == 0) {
		CHECK_EQ(setresuid(STRANGER, STRANGER, STRANGER), 0);
		(void)listener_at(other, 4);
		CHECK_EQ(write(ready[1], "r", 1), 1);
		pause();
	}
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	CHECK(!nupa_bell_open(fabric, other, why, sizeof(why)));
	CHECK(strstr(why, other) && strstr(why, "served by user 65534"));
	CHECK_EQ(kill(child, SIGKILL), 0);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(chown(folder, 0, (gid_t)-1), 0);
}

TEST(another_users_doorbell_is_refused)
{
	if (geteuid() == 0)
		in_a_folder(call_a_stranger);
	else
		puts("not done: only root can become another user");
}

static void call_a_server_that_accepts_nobody(const struct nupa_fabric *fabric)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int listener = listener_at(other, 0), callers[8], n = 0;
	uint64_t began_ns;

	memcpy(address.sun_path, other, strlen(other));
	do {
		CHECK(n < 8);
		callers[n] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
		CHECK(callers[n] >= 0);
	} while (!connect(callers[n++], (struct sockaddr *)&address, sizeof(address)));
	CHECK_EQ(errno, EAGAIN);
	began_ns = test_now_ns();
	CHECK(!nupa_bell_open(fabric, other, why, sizeof(why)));
	CHECK(strstr(why, other));
	CHECK(test_now_ns() - began_ns < WAIT_NS);
	while (n)
		close(callers[--n]);
	close(listener);
}

TEST(a_doorbell_that_accepts_nobody_is_not_waited_for)
{
	in_a_folder(call_a_server_that_accepts_nobody);
}
