/* SPDX-License-Identifier: BSD-3-Clause
 * Looks at one file and its folder by every call of libc that takes a path.  Prints "NAME yes" or
 * "NAME ERRNO" for each call.
 *
 * usage: every_way FOLDER FILE */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);
int __xstat(int version, const char *path, struct stat *st);
int __xstat64(int version, const char *path, struct stat64 *st);
int __lxstat(int version, const char *path, struct stat *st);
int __lxstat64(int version, const char *path, struct stat64 *st);
int __fxstatat(int version, int dir, const char *path, struct stat *st, int flags);
int __fxstatat64(int version, int dir, const char *path, struct stat64 *st, int flags);
char *__realpath_chk(const char *path, char *resolved, size_t room);

#ifdef __x86_64__
#define STAT_VERSION 1
#else
#define STAT_VERSION 0
#endif

static void say(const char *name, int works)
{
	if (works)
		printf("%s yes\n", name);
	else
		printf("%s %s\n", name, strerrorname_np(errno));
}

/* Closes what was opened, after a look at its first byte. */
static void opened(const char *name, int fd)
{
	char byte;

	say(name, fd >= 0 && read(fd, &byte, 1) == 1);
	if (fd >= 0)
		close(fd);
}

static void read_by(const char *name, FILE *file)
{
	say(name, file && fgetc(file) != EOF);
	if (file)
		fclose(file);
}

static void open_it(const char *path)
{
	opened("open", open(path, O_RDONLY));
	opened("open64", open64(path, O_RDONLY));
	opened("openat", openat(AT_FDCWD, path, O_RDONLY));
	opened("openat64", openat64(AT_FDCWD, path, O_RDONLY));
	opened("__open_2", __open_2(path, O_RDONLY));
	opened("__open64_2", __open64_2(path, O_RDONLY));
	opened("__openat_2", __openat_2(AT_FDCWD, path, O_RDONLY));
	opened("__openat64_2", __openat64_2(AT_FDCWD, path, O_RDONLY));
	read_by("fopen", fopen(path, "r"));
	read_by("fopen64", fopen64(path, "re"));
	read_by("freopen", freopen(path, "r", fopen("/dev/null", "r")));
	read_by("freopen64", freopen64(path, "r", fopen("/dev/null", "r")));
}

static void stat_it(const char *path)
{
	struct stat st;
	struct stat64 st64;
	struct statx stx;
	struct statfs fs;
	struct statfs64 fs64;

	say("stat", !stat(path, &st) && S_ISREG(st.st_mode));
	say("stat64", !stat64(path, &st64) && S_ISREG(st64.st_mode));
	say("lstat", !lstat(path, &st) && S_ISREG(st.st_mode));
	say("lstat64", !lstat64(path, &st64) && S_ISREG(st64.st_mode));
	say("fstatat", !fstatat(AT_FDCWD, path, &st, 0));
	say("fstatat64", !fstatat64(AT_FDCWD, path, &st64, 0));
	say("__xstat", !__xstat(STAT_VERSION, path, &st));
	say("__xstat64", !__xstat64(STAT_VERSION, path, &st64));
	say("__lxstat", !__lxstat(STAT_VERSION, path, &st));
	say("__lxstat64", !__lxstat64(STAT_VERSION, path, &st64));
	say("__fxstatat", !__fxstatat(STAT_VERSION, AT_FDCWD, path, &st, 0));
	say("__fxstatat64", !__fxstatat64(STAT_VERSION, AT_FDCWD, path, &st64, 0));
	say("statx", !statx(AT_FDCWD, path, 0, STATX_MODE, &stx) && S_ISREG(stx.stx_mode));
	say("statfs", !statfs(path, &fs));
	say("statfs64", !statfs64(path, &fs64));
	say("access", !access(path, R_OK));
	say("euidaccess", !euidaccess(path, R_OK));
	say("eaccess", !eaccess(path, R_OK));
	say("faccessat", !faccessat(AT_FDCWD, path, R_OK, 0));
}

static void name_it(const char *path)
{
	char resolved[PATH_MAX];
	char *found;

	say("realpath", realpath(path, resolved) && !strcmp(resolved, path));
	say("__realpath_chk",
	    __realpath_chk(path, resolved, sizeof(resolved)) && !strcmp(resolved, path));
	found = realpath(path, NULL);
	say("realpath-allocating", found && !strcmp(found, path));
	free(found);
	found = canonicalize_file_name(path);
	say("canonicalize_file_name", found && !strcmp(found, path));
	free(found);
	/* The error says that it is not a link, not that it is absent. */
	say("readlink", readlink(path, resolved, sizeof(resolved)) < 0 && errno == EINVAL);
	say("readlinkat",
	    readlinkat(AT_FDCWD, path, resolved, sizeof(resolved)) < 0 && errno == EINVAL);
}

static int visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static int visible64(const struct dirent64 *entry)
{
	return entry->d_name[0] != '.';
}

static void list_it(const char *folder, const char *path)
{
	struct dirent **list = NULL;
	struct dirent64 **list64 = NULL;
	char pattern[PATH_MAX], here[PATH_MAX];
	DIR *dir = opendir(folder);
	glob_t found;
	glob64_t found64;

	say("opendir", dir && readdir(dir));
	if (dir)
		closedir(dir);
	say("scandir", scandir(folder, &list, visible, alphasort) > 0);
	say("scandir64", scandir64(folder, &list64, visible64, alphasort64) > 0);
	snprintf(pattern, sizeof(pattern), "%.*s*", (int)strlen(path) - 1, path);
	say("glob", !glob(pattern, 0, NULL, &found) && !strcmp(found.gl_pathv[0], path));
	say("glob64", !glob64(pattern, 0, NULL, &found64) && !strcmp(found64.gl_pathv[0], path));
	say("chdir", !chdir(folder));
	say("getcwd", getcwd(here, sizeof(here)) && !strcmp(here, folder));
	opened("relative", open(path + strlen(folder) + 1, O_RDONLY));
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	open_it(argv[2]);
	stat_it(argv[2]);
	name_it(argv[2]);
	list_it(argv[1], argv[2]);
	return 0;
}
