/* SPDX-License-Identifier: BSD-3-Clause
 * The listener of a host at a TCP port.  All programs of `nupa run` listen in one network
 * namespace, so a wildcard address belongs to the host of the process that holds the socket:
 * proc_net(5) has the socket's inode, proc_pid_fd(5) its holder, and proc_pid_environ(5) the
 * holder's host.
 *
 * It is looked for once for each connection to a host, which takes milliseconds: the kernel looks
 * at all its sockets for proc_net(5).  So an answer holds for a while. */
#define _GNU_SOURCE
#include "shim/shim.h"

#include "base/atomics.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SOCKETS_MAX 16u             /* that listen at one port with a wildcard address */
#define TEXT_MAX_BYTES (256u << 10) /* of a file of /proc/PID that is looked at */
#define TCP_STATE_LISTEN 0x0a
#define HOLDS_MS 100u /* an answer */

struct search {
	uint32_t alias; /* of the host's address, host byte order */
	uint16_t port;
	uint32_t n;
	uint64_t inodes[SOCKETS_MAX];
	const char *fabric, *host;
	char *text; /* the file that is looked at */
};

/* The address of proc_net(5): words of four bytes, each as the machine stores them.  Returns the
 * IPv4 address in host byte order, 0 for a wildcard; false: another IPv6 address. */
static bool read_address(const char *text, uint32_t *ipv4)
{
	uint32_t words[4] = { 0 };
	const size_t n = strlen(text) / 8;
	char word[9] = "";

	if (n != 1 && n != 4)
		return false;
	for (size_t i = 0; i < n; i++) {
		memcpy(word, text + 8 * i, 8);
		words[i] = (uint32_t)strtoul(word, NULL, 16);
	}
	*ipv4 = ntohl(words[n - 1]);
	return n == 1 || (!words[0] && !words[1] && (ntohl(words[2]) == 0xffff || !words[2]));
}

/* Notes the sockets that listen at the port.  Returns true if one has the host's own address. */
static bool read_table(const char *path, struct search *search)
{
	char line[512], address[33];
	unsigned int port, state;
	uint64_t inode;
	uint32_t ipv4;
	bool own = false;
	FILE *file = fopen(path, "re");

	while (file && !own && fgets(line, sizeof(line), file)) {
		if (sscanf(line,
			   " %*u: %32[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s %*s %*s %" SCNu64,
			   address, &port, &state, &inode) != 4 ||
		    port != search->port || state != TCP_STATE_LISTEN ||
		    !read_address(address, &ipv4))
			continue;
		own = ipv4 == search->alias;
		if (!ipv4 && search->n < SOCKETS_MAX)
			search->inodes[search->n++] = inode;
	}
	if (file)
		fclose(file);
	return own;
}

/* A file of /proc/PID as text with two final NULs; "" if it cannot be read. */
static void read_file(int folder, const char *name, char *text, size_t bytes)
{
	int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t got = 1;

	while (fd >= 0 && got > 0 && length < bytes - 2) {
		got = read(fd, text + length, bytes - 2 - length);
		length += got > 0 ? (size_t)got : 0;
	}
	/* Two: the strings of an environment end with NULs, and the last is empty. */
	text[length] = text[length + 1] = '\0';
	if (fd >= 0)
		close(fd);
}

static const char *value_of(const char *environment, const char *name)
{
	const size_t length = strlen(name);

	for (const char *at = environment; *at; at += strlen(at) + 1)
		if (!strncmp(at, name, length) && at[length] == '=')
			return at + length + 1;
	return NULL;
}

static bool is_same_file(const char *path, const char *other)
{
	struct stat one, two;

	return !strcmp(path, other) || (!stat(path, &one) && !stat(other, &two) &&
					one.st_dev == two.st_dev && one.st_ino == two.st_ino);
}

/* The host of a process, of our fabric; NULL: none, or it may not be read. */
static const char *host_of(const struct search *search, int folder)
{
	const char *fabric, *host;

	read_file(folder, "environ", search->text, TEXT_MAX_BYTES);
	fabric = value_of(search->text, "NUPA_FABRIC");
	host = value_of(search->text, "NUPA_HOST");
	return fabric && host && is_same_file(fabric, search->fabric) ? host : NULL;
}

static bool holds_one(const struct search *search, int folder)
{
	int fds = openat(folder, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fds < 0 ? NULL : fdopendir(fds);
	struct dirent *entry;
	char link[64];
	bool holds = false;

	if (!dir && fds >= 0)
		close(fds);
	while (dir && !holds && (entry = readdir(dir))) {
		const ssize_t length = readlinkat(fds, entry->d_name, link, sizeof(link) - 1);
		uint64_t inode;

		link[length > 0 ? length : 0] = '\0';
		if (sscanf(link, "socket:[%" SCNu64 "]", &inode) != 1)
			continue;
		for (uint32_t i = 0; i < search->n; i++)
			holds |= search->inodes[i] == inode;
	}
	if (dir)
		closedir(dir);
	return holds;
}

/* Servers write titles over their environment, but keep the libraries that `nupa run` loaded. */
static bool has_shim(const struct search *search, int folder)
{
	read_file(folder, "maps", search->text, TEXT_MAX_BYTES);
	return strstr(search->text, "/libnupa_shim.so");
}

static void describe(int folder, const char *pid, const char *host, char *who, size_t bytes)
{
	char comm[32];

	read_file(folder, "comm", comm, sizeof(comm));
	comm[strcspn(comm, "\n")] = '\0';
	snprintf(who, bytes, "%s (pid %s)%s%.*s", comm, pid, host ? " on " : "",
		 (int)NUPA_NAME_BYTES, host ? host : "");
}

/* Whether a process is the host's and holds one of the sockets.  Looking at the files of all
 * processes takes longer, and describes a holder that is not the host's. */
static bool is_holder(const struct search *search, int folder, const char *pid, bool all, char *who,
		      size_t bytes)
{
	const char *host = host_of(search, folder);

	if (host && !strcmp(host, search->host))
		return holds_one(search, folder);
	if (!all || !holds_one(search, folder))
		return false;
	describe(folder, pid, host, who, bytes);
	return !host && has_shim(search, folder);
}

static bool find_holder(const struct search *search, bool all, char *who, size_t bytes)
{
	const int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *processes = proc < 0 ? NULL : fdopendir(proc);
	struct dirent *entry;
	bool found = false;

	if (!processes && proc >= 0)
		close(proc);
	while (processes && !found && (entry = readdir(processes))) {
		int folder = -1;

		if (isdigit((unsigned char)entry->d_name[0]))
			folder = openat(proc, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (folder < 0)
			continue;
		found = is_holder(search, folder, entry->d_name, all, who, bytes);
		close(folder);
	}
	if (processes)
		closedir(processes);
	return found;
}

static bool look(struct search *search, char *who, size_t bytes)
{
	bool found;

	if (read_table("/proc/net/tcp", search) || read_table("/proc/net/tcp6", search))
		return true;
	if (search->n == 0)
		return false;
	search->text = malloc(TEXT_MAX_BYTES);
	found = search->text &&
		(find_holder(search, false, who, bytes) || find_holder(search, true, who, bytes));
	free(search->text);
	return found;
}

static uint32_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint32_t)now.tv_sec * 1000 + (uint32_t)(now.tv_nsec / 1000000);
}

bool nupa_shim_listens(const struct nupa_shim_target *at, char *who, size_t who_bytes)
{
	/* The listener that was found last, and when: the upper half. */
	static uint64_t last;
	const struct nupa_shim_net *net = nupa_shim_net();
	struct search search = { .port = at->port };
	const uint64_t before = nupa_load_relaxed(&last);
	const uint32_t now = now_ms();
	const char *own_host;
	uint32_t key;

	*who = '\0';
	if (!net || !nupa_shim_place(&search.fabric, &own_host))
		return false;
	search.host = net->hosts[at->host].name;
	search.alias = nupa_shim_alias(net, (uint32_t)at->host, at->ipv6);
	/* No alias of a host ends with 0. */
	key = search.alias << 16 | at->port;
	if ((uint32_t)before == key && now - (uint32_t)(before >> 32) < HOLDS_MS)
		return true;
	if (!look(&search, who, who_bytes))
		return false;
	nupa_store_relaxed(&last, (uint64_t)now << 32 | key);
	return true;
}
