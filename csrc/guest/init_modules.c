// SPDX-License-Identifier: BSD-3-Clause
/*
 * Modules.  The initramfs has a list of them (nupa/vm/boot/initramfs.py writes it), with lines
 *
 *   boot NAME NEEDS...	loaded at the start; NEEDS are in an order in which they can be loaded
 *   later NAME NEEDS...	loaded when the kernel or a user runs modprobe
 *   alias OTHER NAME	what the kernel may call NAME
 *
 * and beside the list each module as NAME.ko.
 */
#include "guest/init.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LIST_BYTES_MAX 16384
#define LINE_WORDS_MAX 32

/* A line of the list in words; the last is followed by NULL. */
struct line {
	char *words[LINE_WORDS_MAX + 1];
};

/* Reads the list: its bytes, or -errno. */
static int list_read(const char *dir, char *list)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/modules", dir);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ssize_t got = read(fd, list, LIST_BYTES_MAX);
	int error = errno;
	close(fd);
	if (got < 0)
		return -error;
	if (got == LIST_BYTES_MAX)
		return -EFBIG;
	list[got] = '\0';
	return 0;
}

/* The next line with at least two words; false: the list is over. */
static bool next_line(char **list, struct line *line)
{
	for (char *text; (text = strsep(list, "\n"));) {
		int n = 0;

		for (char *word; n < LINE_WORDS_MAX && (word = strsep(&text, " "));)
			if (*word)
				line->words[n++] = word;
		line->words[n] = NULL;
		if (n >= 2)
			return true;
	}
	return false;
}

/* Loads one module that may be there already: 0 or -errno. */
static int insert(const char *dir, const char *name, const char *parameters)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "/sys/module/%s", name);
	if (!access(path, F_OK))
		return 0;
	snprintf(path, sizeof(path), "%s/%s.ko", dir, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int error = syscall(SYS_finit_module, fd, parameters, 0) && errno != EEXIST ? -errno : 0;
	close(fd);
	return error;
}

/* The module of a line and all modules that it needs. */
static int insert_line(const char *dir, const struct line *line, const char *parameters)
{
	int error = 0;

	for (char *const *need = &line->words[2]; *need && !error; need++)
		error = insert(dir, *need, "");
	return error ? error : insert(dir, line->words[1], parameters);
}

int init_modules(struct guest *guest)
{
	char memory[LIST_BYTES_MAX + 1], *list = memory;
	struct line line;
	int error = list_read(MODULES_DIR, memory);

	if (error) {
		errno = -error;
		return guest_fails(guest, "cannot read the list of modules");
	}
	while (next_line(&list, &line)) {
		if (strcmp(line.words[0], "boot") != 0)
			continue;
		error = insert_line(MODULES_DIR, &line, "");
		if (error) {
			errno = -error;
			return guest_fails(guest, "cannot load the module %s", line.words[1]);
		}
	}
	return 0;
}

/* The kernel treats - and _ alike. */
static bool same_name(const char *a, const char *b)
{
	for (; *a && *b; a++, b++)
		if ((*a == '-' ? '_' : *a) != (*b == '-' ? '_' : *b))
			return false;
	return *a == *b;
}

int module_load_with(const char *dir, const char *name, const char *parameters)
{
	char memory[LIST_BYTES_MAX + 1], *list = memory, wanted[64];
	struct line line;
	int error = list_read(dir, memory);

	snprintf(wanted, sizeof(wanted), "%s", name);
	/* An alias precedes its module, so one pass is enough. */
	while (!error && next_line(&list, &line)) {
		bool alias = !strcmp(line.words[0], "alias");

		if (!same_name(line.words[1], wanted))
			continue;
		if (!alias)
			return insert_line(dir, &line, parameters);
		if (line.words[2])
			snprintf(wanted, sizeof(wanted), "%s", line.words[2]);
	}
	return error ? error : -ENOENT;
}

int module_load(const char *dir, const char *name)
{
	return module_load_with(dir, name, "");
}
