/* SPDX-License-Identifier: BSD-3-Clause
 * The memory behind a segment, for those who make and open segments. */
#ifndef NUPA_BACKING_H
#define NUPA_BACKING_H

#include "segment/layout/geometry.h"
#include "segment/segment_internal.h"

/* fallocate, again after EINTR; and the words for its errors. */
int nupa_back_file(int fd, uint64_t offset, uint64_t bytes);
int nupa_explain_backing(int rc, const char *path, uint64_t bytes, char *why, size_t why_bytes);
void *nupa_map_shared(int fd, uint64_t offset, uint64_t bytes); /* NULL with errno */
/* How much memory a device has that can only be mapped (devdax, a PCI resource); 0: it is none. */
uint64_t nupa_device_bytes(int fd);
void nupa_fabric_unmap(struct nupa_fabric *fabric);

#endif
