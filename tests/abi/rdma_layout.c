/* SPDX-License-Identifier: BSD-3-Clause
 * Prints the rdma_cm ABI as one header has it: "name value" lines.  With -DNUPA_ABI the header is
 * ours, else the system's. */
#ifdef NUPA_ABI
#include "abi/rdma_abi.h"
#else
#include <rdma/rdma_cma.h>
#endif

#include "rdma_list.h"

#include <stddef.h>
#include <stdio.h>

#define SIZE(type) printf("sizeof(" #type ") %zu\n", sizeof(type));
#define FIELD(type, field)                                                                         \
	printf(#type "." #field " %zu+%zu\n", offsetof(type, field), sizeof(((type *)0)->field));
#define CONSTANT(name) printf(#name " %lld\n", (long long)name);

int main(void)
{
	RDMA_ABI
#if ABI_LEVEL >= 65
	RDMA_ABI_V65
#endif
	return 0;
}
