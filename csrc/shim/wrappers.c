/* SPDX-License-Identifier: BSD-3-Clause
 * The calls of libc that take a path: each passes it on, the device's paths as those of their
 * copies.
 *
 * Any of them may be called before this library's constructor, after its destructor, from a signal
 * handler or between fork and exec.  Any other path costs a comparison and touches nothing else. */
#define _GNU_SOURCE
/* The symbols themselves are defined here, not what headers make of their names. */
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS
#include "shim/shim.h"

#include "base/atomics.h"
#include "shim/call.h"
#include "shim/umad.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Symbols imported by binaries that were compiled with checks, or with an older libc. */
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
ssize_t __readlink_chk(const char *path, char *to, size_t bytes, size_t room);
ssize_t __readlinkat_chk(int dir, const char *path, char *to, size_t bytes, size_t room);
char *__realpath_chk(const char *path, char *resolved, size_t room);

void *nupa_shim_next_of(struct nupa_shim_call *call)
{
	void *next = nupa_load_acquire(&call->next);

	if (!next) {
		next = dlsym(RTLD_NEXT, call->name);
		nupa_store_release(&call->next, next);
	}
	return next;
}

/* All of that section: afterwards no call needs dlsym, which a signal handler must not call. */
extern struct nupa_shim_call __start_nupa_calls[], __stop_nupa_calls[];

__attribute__((constructor)) static void find_all(void)
{
	for (struct nupa_shim_call *call = __start_nupa_calls; call < __stop_nupa_calls; call++)
		(void)nupa_shim_next_of(call);
}

/* Nearly no other path has this beginning. */
static bool may_be_ours(const char *path)
{
	return path && (!strncmp(path, "/sys/", 5) || !strncmp(path, "/dev/inf", 8));
}

/* The same, relative to "/": hwloc opens that folder and goes on from there. */
static bool may_be_ours_at(const char *path)
{
	return path && (!strncmp(path, "sys/", 4) || !strncmp(path, "dev/inf", 7));
}

/* A call that this libc lacks fails like one that this kernel lacks. */
#define WRAP_BODY(failure, name, relative, call)                                                   \
	{                                                                                          \
		char buffer[NUPA_SHIM_PATH_MAX_BYTES];                                             \
		CALL(name);                                                                        \
                                                                                                   \
		if (!next) {                                                                       \
			errno = ENOSYS;                                                            \
			return failure;                                                            \
		}                                                                                  \
		if (__builtin_expect(may_be_ours(path), 0))                                        \
			path = nupa_shim_path(path, buffer);                                       \
		relative;                                                                          \
		return call;                                                                       \
	}
#define NOT_RELATIVE (void)0
#define RELATIVE_TO_DIR                                                                            \
	if (__builtin_expect(may_be_ours_at(path), 0))                                             \
	path = nupa_shim_path_at(dir, path, buffer)
#define WRAP(type, failure, name, parameters, ...)                                                 \
	NUPA_SHIM_WRAPPER type name parameters WRAP_BODY(failure, name, NOT_RELATIVE,              \
							 next(__VA_ARGS__))
#define WRAP_AT(type, failure, name, parameters, ...)                                              \
	NUPA_SHIM_WRAPPER type name parameters WRAP_BODY(failure, name, RELATIVE_TO_DIR,           \
							 next(__VA_ARGS__))

/* open(2): only these flags are followed by a mode. */
#define WRAP_OPEN(name, relative, parameters, ...)                                                 \
	NUPA_SHIM_WRAPPER int name parameters                                                      \
	{                                                                                          \
		mode_t mode = 0;                                                                   \
		int umad;                                                                          \
                                                                                                   \
		/* Devices that are served, where other files have copies. */                      \
		if (__builtin_expect(may_be_ours(path), 0)) {                                      \
			umad = nupa_umad_open(path, flags);                                        \
			if (umad != NUPA_UMAD_OTHER)                                               \
				return umad;                                                       \
		}                                                                                  \
		if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {                         \
			va_list args;                                                              \
                                                                                                   \
			va_start(args, flags);                                                     \
			mode = va_arg(args, mode_t);                                               \
			va_end(args);                                                              \
		}                                                                                  \
		WRAP_BODY(-1, name, relative, next(__VA_ARGS__, mode))                             \
	}

WRAP_OPEN(open, NOT_RELATIVE, (const char *path, int flags, ...), path, flags)
WRAP_OPEN(open64, NOT_RELATIVE, (const char *path, int flags, ...), path, flags)
WRAP_OPEN(openat, RELATIVE_TO_DIR, (int dir, const char *path, int flags, ...), dir, path, flags)
WRAP_OPEN(openat64, RELATIVE_TO_DIR, (int dir, const char *path, int flags, ...), dir, path, flags)
NUPA_SHIM_WRAPPER int __open_2(const char *path, int flags)
{
	return open(path, flags);
}

NUPA_SHIM_WRAPPER int __open64_2(const char *path, int flags)
{
	return open64(path, flags);
}

WRAP_AT(int, -1, __openat_2, (int dir, const char *path, int flags), dir, path, flags)
WRAP_AT(int, -1, __openat64_2, (int dir, const char *path, int flags), dir, path, flags)

WRAP(FILE *, NULL, fopen, (const char *path, const char *mode), path, mode)
WRAP(FILE *, NULL, fopen64, (const char *path, const char *mode), path, mode)
WRAP(FILE *, NULL, freopen, (const char *path, const char *mode, FILE *file), path, mode, file)
WRAP(FILE *, NULL, freopen64, (const char *path, const char *mode, FILE *file), path, mode, file)

WRAP(int, -1, stat, (const char *path, struct stat *st), path, st)
WRAP(int, -1, stat64, (const char *path, struct stat64 *st), path, st)
WRAP(int, -1, lstat, (const char *path, struct stat *st), path, st)
WRAP(int, -1, lstat64, (const char *path, struct stat64 *st), path, st)
WRAP_AT(int, -1, fstatat, (int dir, const char *path, struct stat *st, int flags), dir, path, st,
	flags)
WRAP_AT(int, -1, fstatat64, (int dir, const char *path, struct stat64 *st, int flags), dir, path,
	st, flags)
WRAP(int, -1, __xstat, (int version, const char *path, struct stat *st), version, path, st)
WRAP(int, -1, __xstat64, (int version, const char *path, struct stat64 *st), version, path, st)
WRAP(int, -1, __lxstat, (int version, const char *path, struct stat *st), version, path, st)
WRAP(int, -1, __lxstat64, (int version, const char *path, struct stat64 *st), version, path, st)
WRAP_AT(int, -1, __fxstatat, (int version, int dir, const char *path, struct stat *st, int flags),
	version, dir, path, st, flags)
WRAP_AT(int, -1, __fxstatat64,
	(int version, int dir, const char *path, struct stat64 *st, int flags), version, dir, path,
	st, flags)
WRAP_AT(int, -1, statx, (int dir, const char *path, int flags, unsigned int mask, struct statx *st),
	dir, path, flags, mask, st)
WRAP(int, -1, statfs, (const char *path, struct statfs *st), path, st)
WRAP(int, -1, statfs64, (const char *path, struct statfs64 *st), path, st)

WRAP(int, -1, access, (const char *path, int mode), path, mode)
WRAP(int, -1, euidaccess, (const char *path, int mode), path, mode)
WRAP(int, -1, eaccess, (const char *path, int mode), path, mode)
WRAP_AT(int, -1, faccessat, (int dir, const char *path, int mode, int flags), dir, path, mode,
	flags)
WRAP(ssize_t, -1, getxattr, (const char *path, const char *name, void *value, size_t bytes), path,
     name, value, bytes)
WRAP(ssize_t, -1, lgetxattr, (const char *path, const char *name, void *value, size_t bytes), path,
     name, value, bytes)
WRAP(ssize_t, -1, listxattr, (const char *path, char *list, size_t bytes), path, list, bytes)
WRAP(ssize_t, -1, llistxattr, (const char *path, char *list, size_t bytes), path, list, bytes)

WRAP(ssize_t, -1, readlink, (const char *path, char *to, size_t bytes), path, to, bytes)
WRAP_AT(ssize_t, -1, readlinkat, (int dir, const char *path, char *to, size_t bytes), dir, path, to,
	bytes)
WRAP(ssize_t, -1, __readlink_chk, (const char *path, char *to, size_t bytes, size_t room), path, to,
     bytes, room)
WRAP_AT(ssize_t, -1, __readlinkat_chk,
	(int dir, const char *path, char *to, size_t bytes, size_t room), dir, path, to, bytes,
	room)

WRAP(DIR *, NULL, opendir, (const char *path), path)
WRAP(int, -1, scandir,
     (const char *path, struct dirent ***list, int (*filter)(const struct dirent *),
      int (*compare)(const struct dirent **, const struct dirent **)),
     path, list, filter, compare)
WRAP(int, -1, scandir64,
     (const char *path, struct dirent64 ***list, int (*filter)(const struct dirent64 *),
      int (*compare)(const struct dirent64 **, const struct dirent64 **)),
     path, list, filter, compare)
WRAP(int, -1, chdir, (const char *path), path)

/* A tail call (CMakeLists.txt): the loader searches the RUNPATH of the object that it returns to.
 */
NUPA_SHIM_WRAPPER void *dlopen(const char *name, int flags)
{
	CALL(dlopen);

	return next ? next(nupa_shim_library(name), flags) : NULL;
}

/* --- calls that answer with a path --------------------------------------------------- */

static char *named(char *path)
{
	if (path)
		nupa_shim_name(path);
	return path;
}

#define WRAP_NAMED(name, parameters, ...)                                                          \
	NUPA_SHIM_WRAPPER char *name parameters WRAP_BODY(NULL, name, NOT_RELATIVE,                \
							  named(next(__VA_ARGS__)))

WRAP_NAMED(realpath, (const char *path, char *resolved), path, resolved)
WRAP_NAMED(__realpath_chk, (const char *path, char *resolved, size_t room), path, resolved, room)
WRAP_NAMED(canonicalize_file_name, (const char *path), path)

NUPA_SHIM_WRAPPER char *getcwd(char *to, size_t bytes)
{
	CALL(getcwd);

	return named(next(to, bytes));
}

static void *glob_opendir(const char *path)
{
	return opendir(path);
}

static void glob_closedir(void *dir)
{
	(void)closedir(dir);
}

/* glob(3) calls what it needs past these wrappers, unless it is given functions to call instead. */
#define WRAP_GLOB(name, kind, entry, readdir_, stat_, lstat_)                                      \
	static entry *name##_readdir(void *dir)                                                    \
	{                                                                                          \
		return readdir_(dir);                                                              \
	}                                                                                          \
                                                                                                   \
	NUPA_SHIM_WRAPPER int name(const char *path, int flags, int (*failed)(const char *, int),  \
				   kind *found)                                                    \
	{                                                                                          \
		CALL(name);                                                                        \
                                                                                                   \
		if (may_be_ours(path) && !(flags & GLOB_ALTDIRFUNC)) {                             \
			flags |= GLOB_ALTDIRFUNC;                                                  \
			found->gl_opendir = glob_opendir;                                          \
			found->gl_readdir = name##_readdir;                                        \
			found->gl_closedir = glob_closedir;                                        \
			found->gl_stat = stat_;                                                    \
			found->gl_lstat = lstat_;                                                  \
		}                                                                                  \
		return next(path, flags, failed, found);                                           \
	}

WRAP_GLOB(glob, glob_t, struct dirent, readdir, stat, lstat)
WRAP_GLOB(glob64, glob64_t, struct dirent64, readdir64, stat64, lstat64)
