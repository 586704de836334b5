// SPDX-License-Identifier: BSD-3-Clause
/*
 * `nupa`: runs a program on a host of a fabric, or becomes Python, which has all commands.  The
 * interpreter and its modules would take most of the time of `nupa run`.
 */
#include "launcher/launcher.h"

#include <stdlib.h>
#include <unistd.h>

#define LOCK_MS 1000u       /* then Python waits, and says for whom */
#define LAST_LOCK_MS 60000u /* the program has ended: nupa/base/locks.py */

static struct nupa_place place;
static struct nupa_registry registry;
static struct nupa_lease lease;

/* Ends our use of the fabric.  An automatic one goes with its last user. */
static void end_lease(void)
{
	const bool automatic = nupa_fabric_flags(lease.fabric) & NUPA_SEGMENT_AUTO;

	nupa_fabric_put(lease.fabric);
	if (automatic && nupa_registry_lock(&registry, LAST_LOCK_MS)) {
		nupa_collect(&registry, lease.name);
		nupa_registry_unlock(&registry);
	}
}

static bool take_lease(const struct nupa_line *line)
{
	bool taken;

	if (!nupa_registry_find(&registry) || !nupa_registry_lock(&registry, LOCK_MS))
		return false;
	taken = nupa_lease_take(&registry, line, &lease);
	nupa_registry_unlock(&registry);
	return taken;
}

/* The program's wait status; -1: it has not been started. */
static int run(const struct nupa_line *line, const sigset_t *before)
{
	char **environment;
	pid_t child = -1;
	int status = -1;

	if (!take_lease(line))
		return -1;
	environment = nupa_environment(environ, &place, &lease, !line->host);
	if (environment && !nupa_program_is_ended())
		child = nupa_program_start(line->command, environment, before);
	if (child > 0)
		status = nupa_program_await(child);
	end_lease();
	return status;
}

int main(int argc, char **argv)
{
	struct nupa_line line = { 0 };
	sigset_t before;
	int status;

	if (argc > 1 && nupa_line_read(argv, &line) && nupa_place_find(&place) &&
	    nupa_reach_is_plain(line.command[0], place.shim)) {
		nupa_program_block(&before);
		status = run(&line, &before);
		if (status >= 0)
			return nupa_program_end_as(status, &before);
		nupa_program_unblock(&before);
	}
	return nupa_become_python(argv);
}
