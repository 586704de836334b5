/* SPDX-License-Identifier: BSD-3-Clause
 * Declarations that nupa.verbs reads beside those of csrc/abi: types of libc and devices.
 * The compiler completes a declaration that ends in `...`.  Only cffi reads the marked part. */
#ifndef NUPA_VERBS_CDEF_H
#define NUPA_VERBS_CDEF_H

#include "engine/device/batch.h"
#include "engine/core/nupa.h"

#if 0
/* cffi: begin */
typedef struct {
	...;
} pthread_mutex_t;
typedef struct {
	...;
} pthread_cond_t;
struct timespec {
	long tv_sec;
	long tv_nsec;
	...;
};
typedef int... socklen_t;
struct sockaddr {
	...;
};
struct sockaddr_in {
	...;
};
struct sockaddr_in6 {
	...;
};
struct sockaddr_storage {
	...;
};

struct ibv_device {
	enum ibv_node_type node_type;
	enum ibv_transport_type transport_type;
	char name[64];
	...;
};
struct ibv_context {
	struct ibv_device *device;
	int cmd_fd;
	int async_fd;
	int num_comp_vectors;
	...;
};
/* cffi: end */
#endif

#endif
