/* SPDX-License-Identifier: BSD-3-Clause
 * The group of sockets that are bound to our address and port 4791, in the kernel's order.
 *
 *   G1  A socket that is bound is the last, and the last takes the place of one that is closed
 *       (net/core/sock_reuseport.c).  The keeper holds a duplicate of each, so that it decides when
 *       one is closed.
 *   G2  The process, or a child of it, may hold a socket still.  Then it stays in the group,
 *       without packets, until /proc/net/udp shows it no more.
 *   G3  As long as k sockets may go at any time, the last k may change places: their packets go
 *       to the keeper, which passes them on (steer.c). */
#include "wire/keeper_internal.h"

#include <stdio.h>
#include <sys/stat.h>

static uint64_t inode_of(int fd)
{
	struct stat status;

	return fstat(fd, &status) ? 0 : status.st_ino;
}

/* Whether the kernel has a UDP socket of that inode in our network namespace. */
static bool is_there(const struct nupa_keeper *keeper, uint64_t inode)
{
	FILE *file =
	    fopen(keeper->ipv4 ? "/proc/thread-self/net/udp" : "/proc/thread-self/net/udp6", "re");
	char line[256];
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file)) {
		unsigned long long number;

		found = sscanf(line, " %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu", &number) == 1 &&
			number == inode;
	}
	if (file)
		fclose(file);
	return found;
}

/* G1 */
static void drop(struct nupa_keeper *keeper, uint32_t at)
{
	keeper->group[at] = keeper->group[--keeper->n_group];
}

/* G2: those that have gone meanwhile.  True: the order is another one. */
static bool prune(struct nupa_keeper *keeper)
{
	bool changed = false;

	keeper->group_unsure = false;
	for (uint32_t i = keeper->n_group; i-- > 1;) {
		if (keeper->group[i].member)
			continue;
		if (is_there(keeper, keeper->group[i].inode)) {
			keeper->group_unsure = true;
		} else {
			drop(keeper, i);
			changed = true;
		}
	}
	return changed;
}

bool nupa_group_tick(struct nupa_keeper *keeper)
{
	if (keeper->group_unsure && prune(keeper))
		(void)nupa_steer(keeper);
	return keeper->group_unsure;
}

void nupa_group_add(struct nupa_keeper *keeper, struct nupa_member *member, int fd)
{
	keeper->group[keeper->n_group++] =
	    (struct nupa_group_socket){ .member = member, .inode = inode_of(fd) };
}

void nupa_group_leave(struct nupa_keeper *keeper, const struct nupa_member *member)
{
	uint32_t at = 1;

	while (at < keeper->n_group && keeper->group[at].member != member)
		at++;
	if (at == keeper->n_group)
		return;
	keeper->group[at].member = NULL;
	(void)nupa_steer(keeper); /* G3 */
}

void nupa_group_left(struct nupa_keeper *keeper)
{
	(void)prune(keeper);
	keeper->unsure_ns = nupa_clock_ns();
	(void)nupa_steer(keeper);
}
