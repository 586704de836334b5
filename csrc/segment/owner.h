/* SPDX-License-Identifier: BSD-3-Clause
 * Ownership of files (docs/files.md): a name proves nothing where several users may create files.
 */
#ifndef NUPA_OWNER_H
#define NUPA_OWNER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Whether *user*, as the kernel reported it, is this process's.  A user namespace shows all
 * unmapped users as one, so without a mapping of this user nothing is its own. */
bool nupa_owner_is_us(uid_t user);

/* Opens a file that may be a fabric, for reading and writing, and follows no link to a file.
 * Returns its descriptor, or -errno with the words.  It never waits; nupa_owner_check() judges the
 * opened file. */
int nupa_owner_open(const char *path, char *why, size_t why_bytes);

/* Whether the open file holds memory that this process may trust: 0, or -EPERM with the words.  A
 * file: this user's, closed to others, with one name.  A device's memory: this user's or the
 * system's. */
int nupa_owner_check(const struct stat *status, bool device, const char *path, char *why,
		     size_t why_bytes);

/* ", which belongs to user N", of the file or link at *path*; or nothing. */
const char *nupa_owner_say(const char *path, char *text, size_t text_bytes);

#endif
