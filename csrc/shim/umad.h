/* SPDX-License-Identifier: BSD-3-Clause
 * /dev/infiniband/umad0 and issm0, for the calls that wrappers.c wraps for other files, too. */
#ifndef NUPA_SHIM_UMAD_H
#define NUPA_SHIM_UMAD_H

#include "mad/subnet.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* It is another file; no errno. */
#define NUPA_UMAD_OTHER (-4096)

/* A descriptor of the device at *path*, or -1 with errno, or NUPA_UMAD_OTHER. */
int nupa_umad_open(const char *path, int flags);
/* Where this program never opened one it only looks at a word. */
bool nupa_umad_is_ours(int fd);
/* As read(2), write(2) and ioctl(2), with errno. */
ssize_t nupa_umad_read(int fd, void *to, size_t bytes);
ssize_t nupa_umad_write(int fd, const void *from, size_t bytes);
int nupa_umad_ioctl(int fd, unsigned long request, void *argument);

/* Whether a program of the host has issm0 open. */
bool nupa_mailbox_is_sm(const struct nupa_subnet *subnet, uint32_t host);

#endif
