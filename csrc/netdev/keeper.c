// SPDX-License-Identifier: BSD-3-Clause
/*
 * The keeper of `nupa net up`: holds the network namespaces of a fabric's hosts open, by the
 * descriptors that it inherited, and does nothing else.  It is a program of its own because an idle
 * interpreter would cost megabytes.
 *
 * usage: nupa_keeper FD NAME. It waits for a byte from FD; the end of FD, the death of `nupa net
 * up`, ends it.  NAME is for ps(1).
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char word;
	ssize_t got;

	if (argc != 3)
		return 2;
	int fd = (int)strtol(argv[1], NULL, 10);

	do
		got = read(fd, &word, 1);
	while (got < 0 && errno == EINTR);
	if (got != 1)
		return 1;
	close(fd);
	for (;;)
		pause();
}
