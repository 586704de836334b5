// SPDX-License-Identifier: BSD-3-Clause
/*
 * nupa-guest: one static program, /init of a guest's initramfs and, under the name modprobe, the
 * loader of modules for its kernel and users.
 */
#include "guest/init.h"
#include "guest/main.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* modprobe [-OPTION...] [--] NAME: -q, with which the kernel calls it, silences it. */
static int modprobe(char **argv)
{
	int quiet = 0;

	for (argv++; *argv && **argv == '-'; argv++)
		quiet |= !strcmp(*argv, "-q");
	if (!*argv) {
		fprintf(stderr, "usage: modprobe [-q] NAME\n");
		return 2;
	}
	int error = module_load("/run/nupa", *argv);
	if (error && !quiet)
		fprintf(stderr,
			"modprobe: cannot load %s: %s; modules of this guest are in "
			"/run/nupa/modules\n",
			*argv, strerror(-error));
	return error ? 1 : 0;
}

int main(int argc, char **argv)
{
	const char *name = strrchr(argv[0], '/');

	(void)argc;
	name = name ? name + 1 : argv[0];
	if (!strcmp(name, "modprobe"))
		return modprobe(argv);
	if (getpid() == 1)
		guest_init();
	fprintf(stderr, "nupa-guest runs only as process 1 of a guest of `nupa vm up`\n");
	return 2;
}
