// SPDX-License-Identifier: BSD-3-Clause
/*
 * The files of the installation.  In a checkout the command is a link to PACKAGE/bin/nupa.  A wheel
 * has the program itself in PREFIX/bin and the package in PREFIX/lib/pythonX.Y.  In both a script
 * of pip's lies beside the command and knows the interpreter.
 */
#include "launcher/launcher.h"

#include <errno.h>
#include <glob.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define SCRIPT "nupa-python" /* pyproject.toml, project.scripts */
#define LINKS_MAX 8

static bool is_package(const char *folder)
{
	char path[PATH_MAX];

	return (size_t)snprintf(path, sizeof(path), "%s/__init__.py", folder) < sizeof(path) &&
	       !access(path, F_OK);
}

/* The package, by the folder of this program. */
static bool find_package(const char *bin, char package[PATH_MAX])
{
	char pattern[PATH_MAX];
	bool found = false;
	glob_t packages;

	if ((size_t)snprintf(pattern, sizeof(pattern), "%s/..", bin) >= sizeof(pattern))
		return false;
	if (is_package(pattern))
		return realpath(pattern, package) != NULL;
	if ((size_t)snprintf(pattern, sizeof(pattern), "%s/../lib/python3*/*-packages/nupa", bin) >=
	    sizeof(pattern))
		return false;
	/* Several: the script knows which is meant. */
	if (!glob(pattern, GLOB_NOSORT, NULL, &packages)) {
		found = packages.gl_pathc == 1 && is_package(packages.gl_pathv[0]) &&
			realpath(packages.gl_pathv[0], package);
		globfree(&packages);
	}
	return found;
}

static bool library(const struct nupa_place *place, const char *name, char path[PATH_MAX])
{
	return snprintf(path, PATH_MAX, "%s/%s", place->lib, name) < PATH_MAX;
}

bool nupa_place_find(struct nupa_place *place)
{
	char program[PATH_MAX], package[PATH_MAX];
	const ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);

	if (length <= 0)
		return false;
	program[length] = '\0';
	return find_package(dirname(program), package) &&
	       snprintf(place->lib, sizeof(place->lib), "%s/lib", package) < PATH_MAX &&
	       library(place, "libnupa_shim.so", place->shim) &&
	       library(place, "libibverbs.so.1", place->verbs) &&
	       library(place, "librdmacm.so.1", place->rdmacm);
}

/* Makes *path*, which may be a link, the path of its target. */
static bool follow(char path[PATH_MAX])
{
	char target[PATH_MAX], at[PATH_MAX];
	const ssize_t length = readlink(path, target, sizeof(target) - 1);

	if (length <= 0)
		return false;
	target[length] = '\0';
	if (target[0] == '/') {
		memcpy(path, target, (size_t)length + 1);
		return true;
	}
	snprintf(at, sizeof(at), "%s", path);
	return snprintf(path, PATH_MAX, "%s/%s", dirname(at), target) < PATH_MAX;
}

int nupa_become_python(char **argv)
{
	/* The path that execve(2) was given: argv[0] may be anything. */
	const char *started = (const char *)(uintptr_t)getauxval(AT_EXECFN);
	char path[PATH_MAX], folder[PATH_MAX], script[PATH_MAX];
	int error = ENOENT;

	snprintf(path, sizeof(path), "%s", started ? started : argv[0]);
	for (int link = 0; link < LINKS_MAX && error == ENOENT; link++) {
		snprintf(folder, sizeof(folder), "%s", path);
		if (snprintf(script, sizeof(script), "%s/" SCRIPT, dirname(folder)) >= PATH_MAX)
			break;
		/* NOLINTNEXTLINE(clang-analyzer-optin.taint.GenericTaint): Python judges */
		execv(script, argv);
		error = errno;
		if (error == ENOENT && !access(script, F_OK))
			break; /* its interpreter is missing */
		if (!follow(path))
			break;
	}
	fprintf(stderr,
		"nupa: cannot run %s: %s; install the package again (`pip install .`, `make "
		"build`)\n",
		script, strerror(error));
	return EXIT_FAILURE;
}
