/* SPDX-License-Identifier: BSD-3-Clause
 * The command `nupa`: does a plain `nupa run` itself and gives all other command lines to Python.
 *
 * It takes the success of a plain case alone, so the texts of errors and the rules of guests,
 * trunks and tenants are in one place, nupa/cli/run and nupa/fabric.  A function that returns false
 * has found something else, before the program has started: it leaves nothing behind, and Python
 * does the whole anew.  tests/unit/cli/launcher compares the two. */
#ifndef NUPA_LAUNCHER_H
#define NUPA_LAUNCHER_H

#include "segment/segment.h"

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#define NUPA_FABRIC_DEFAULT "default"

/* The words of a plain `nupa run`: line.c. */
struct nupa_line {
	const char *fabric; /* NULL: none is named */
	const char *host;   /* NULL: any */
	char **command;
};
bool nupa_line_read(char **argv, struct nupa_line *line);

/* Files of the installation: place.c. */
struct nupa_place {
	char lib[PATH_MAX]; /* of the package: its libraries */
	char shim[PATH_MAX], verbs[PATH_MAX], rdmacm[PATH_MAX];
};
bool nupa_place_find(struct nupa_place *place);
/* Becomes the Python script beside the path by which this program was started, or says that there
 * is none and returns the exit code. */
int nupa_become_python(char **argv);

/* The folder of fabrics, and the control lock: registry.c.  nupa/fabric/registry.py explains. */
struct nupa_registry {
	char folder[256];
	bool named; /* by NUPA_DIR: it stays when it is empty */
	int lock;
};
bool nupa_registry_find(struct nupa_registry *registry);
bool nupa_registry_lock(struct nupa_registry *registry, unsigned int wait_ms);
void nupa_registry_unlock(struct nupa_registry *registry);
/* PREFIX nupa-UID-NAME SUFFIX in the folder; false: the path is too long. */
bool nupa_registry_path(const struct nupa_registry *registry, const char *prefix, const char *name,
			const char *suffix, char path[PATH_MAX]);
bool nupa_name_is_valid(const char *name);
bool nupa_exists(const char *path);

/* With the control lock.  Removes an automatic fabric that is not in use: collect.c. */
void nupa_collect(const struct nupa_registry *registry, const char *name);
/* Removes files that belong to the fabric beside its segment. */
void nupa_collect_beside(const struct nupa_registry *registry, const char *name);

/* A fabric in use, and a host of it that is leased: lease.c.  The lock is held. */
struct nupa_lease {
	struct nupa_fabric *fabric;
	char name[NUPA_NAME_BYTES + 1];
	char path[PATH_MAX];
	const char *host;
};
bool nupa_lease_take(const struct nupa_registry *registry, const struct nupa_line *line,
		     struct nupa_lease *lease);
/* The fabric that is made when none is up, as nupa.fabric.default_topology() has it: pair.c. */
struct nupa_fabric *nupa_pair_create(const char *path, const char *name);

/* The program's environment: environment.c.  NULL: not a plain one. */
char **nupa_environment(char **ours, const struct nupa_place *place, const struct nupa_lease *lease,
			bool any_host);
/* Whether it is plain that the program will load our libraries: reach.c. */
bool nupa_reach_is_plain(const char *command, const char *shim);

/* Runs the program with our signals for it: program.c.  They are blocked from the first call on. */
void nupa_program_block(sigset_t *before);
void nupa_program_unblock(const sigset_t *before);
/* A signal has arrived that is to end us. */
bool nupa_program_is_ended(void);
/* The pid, or -1. */
pid_t nupa_program_start(char **command, char **environment, const sigset_t *mask);
/* Its wait status (waitpid(2)). */
int nupa_program_await(pid_t child);
/* Ends this process as the program ended. */
int nupa_program_end_as(int status, const sigset_t *before);

#endif
