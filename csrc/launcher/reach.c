// SPDX-License-Identifier: BSD-3-Clause
/* Whether the program's file shows that it loads our libraries.  nupa/cli/run/reach.py says of all
 * others why they do not. */
#include "launcher/launcher.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define SEGMENTS_MAX 64u
#define LINE_BYTES 256u

static bool is_file(const char *path)
{
	struct stat status;

	return !stat(path, &status) && S_ISREG(status.st_mode);
}

/* The file that posix_spawnp(3) will find. */
static bool find(const char *command, char path[PATH_MAX])
{
	const char *folder, *folders = getenv("PATH");
	bool found = false;
	char *copy, *rest;

	if (strchr(command, '/')) {
		snprintf(path, PATH_MAX, "%s", command);
		return strlen(command) < PATH_MAX && is_file(path);
	}
	rest = copy = folders ? strdup(folders) : NULL;
	while (!found && (folder = strsep(&rest, ":"))) /* an empty one is the current folder */
		found = snprintf(path, PATH_MAX, "%s%s%s", folder, *folder ? "/" : "", command) <
			    PATH_MAX &&
			!access(path, X_OK) && is_file(path);
	free(copy);
	return found;
}

/* The interpreter that a script names (execve(2)); path stays for all other files. */
static bool find_interpreter(char path[PATH_MAX])
{
	char line[LINE_BYTES] = "", *rest;
	FILE *file = fopen(path, "re");
	const char *word;

	if (!file)
		return false;
	word = fgets(line, sizeof(line), file);
	fclose(file);
	if (!word || strncmp(line, "#!", 2) != 0)
		return word != NULL;
	word = strtok_r(line + 2, " \t\r\v\f\n", &rest);
	snprintf(path, PATH_MAX, "%s", word ? word : "");
	return is_file(path);
}

static bool gains_rights(const char *path)
{
	struct stat status;

	return stat(path, &status) || status.st_mode & (S_ISUID | S_ISGID) ||
	       getxattr(path, "security.capability", NULL, 0) > 0;
}

static bool read_header(int fd, Elf64_Ehdr *header)
{
	return pread(fd, header, sizeof(*header), 0) == sizeof(*header) &&
	       memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
	       header->e_ident[EI_CLASS] == ELFCLASS64;
}

/* It has a loader, which is glibc's. */
static bool has_loader(int fd, const Elf64_Ehdr *header)
{
	Elf64_Phdr segments[SEGMENTS_MAX];
	const uint32_t n = header->e_phnum < SEGMENTS_MAX ? header->e_phnum : SEGMENTS_MAX;
	const size_t bytes = n * sizeof(*segments);
	char name[LINE_BYTES];
	const char *base;
	ssize_t length;

	if (header->e_phentsize != sizeof(*segments) ||
	    pread(fd, segments, bytes, (off_t)header->e_phoff) != (ssize_t)bytes)
		return false;
	for (uint32_t i = 0; i < n; i++) {
		if (segments[i].p_type != PT_INTERP)
			continue;
		length = pread(fd, name, sizeof(name) - 1, (off_t)segments[i].p_offset);
		name[length > 0 ? length : 0] = '\0';
		base = strrchr(name, '/');
		return base && strncmp(base, "/ld-linux", strlen("/ld-linux")) == 0;
	}
	return false;
}

static bool loads(const char *path, const char *shim)
{
	const int ours = open(shim, O_RDONLY | O_CLOEXEC),
		  theirs = open(path, O_RDONLY | O_CLOEXEC);
	Elf64_Ehdr mine, header;
	bool does;

	does = ours >= 0 && theirs >= 0 && read_header(ours, &mine) &&
	       read_header(theirs, &header) && mine.e_ident[EI_DATA] == header.e_ident[EI_DATA] &&
	       mine.e_machine == header.e_machine && has_loader(theirs, &header);
	if (ours >= 0)
		close(ours);
	if (theirs >= 0)
		close(theirs);
	return does;
}

bool nupa_reach_is_plain(const char *command, const char *shim)
{
	char path[PATH_MAX];

	return find(command, path) && find_interpreter(path) && !gains_rights(path) &&
	       loads(path, shim);
}
