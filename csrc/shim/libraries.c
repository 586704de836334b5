/* SPDX-License-Identifier: BSD-3-Clause
 * The libraries beside this one, for programs that bring their own and open them by a path or under
 * another name.  Those that are linked with their own need nothing of this: ours are preloaded, and
 * the loader takes the first library of a name, and the first definition of a symbol. */
#define _GNU_SOURCE
#include "shim/shim.h"

#include <ctype.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	const char *stem;
	char path[PATH_MAX]; /* "": not to be replaced */
} libraries[] = { { .stem = "libibverbs" }, { .stem = "librdmacm" } };
#define N_LIBRARIES (sizeof(libraries) / sizeof(libraries[0]))

__attribute__((constructor)) static void find_libraries(void)
{
	const char *preload = secure_getenv("NUPA_PRELOAD");
	const char *slash;
	Dl_info self;

	if ((preload && !strcmp(preload, "0")) || !dladdr(libraries, &self))
		return;
	slash = strrchr(self.dli_fname, '/');
	for (size_t i = 0; slash && i < N_LIBRARIES; i++) {
		int bytes =
		    snprintf(libraries[i].path, PATH_MAX, "%.*s/%s.so.1",
			     (int)(slash - self.dli_fname), self.dli_fname, libraries[i].stem);

		if (bytes < 0 || bytes >= PATH_MAX)
			libraries[i].path[0] = '\0';
	}
}

/* libNAME.so, .so.1, .so.1.14.59.0; and, as wheels have it, libNAME-0123abcd.so.1.14.59.0. */
static bool is_named(const char *base, const char *stem)
{
	size_t length = strlen(stem);

	if (strncmp(base, stem, length) != 0)
		return false;
	base += length;
	if (*base == '-' && isxdigit((unsigned char)base[1]))
		for (base++; isxdigit((unsigned char)*base);)
			base++;
	if (strncmp(base, ".so", 3) != 0)
		return false;
	base += 3;
	return !*base || !strcmp(base, ".1") || !strncmp(base, ".1.", 3);
}

const char *nupa_shim_library(const char *name)
{
	const char *slash = name ? strrchr(name, '/') : NULL;
	const char *base = slash ? slash + 1 : name;

	for (size_t i = 0; base && i < N_LIBRARIES; i++)
		if (libraries[i].path[0] && is_named(base, libraries[i].stem))
			return libraries[i].path;
	return name;
}
