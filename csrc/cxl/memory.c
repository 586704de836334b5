/* SPDX-License-Identifier: BSD-3-Clause
 * The memory of poison.h: created and freed, with its snoop filter. */
#include "cxl/poison.h"

#include "cxl/snoop.h"

#include <errno.h>
#include <stdlib.h>

struct nupa_cxl_memory *nupa_cxl_memory_new(void *bytes, uint64_t size)
{
	struct nupa_cxl_memory *memory;

	if (size % CXL_LINE_BYTES) {
		errno = EINVAL;
		return NULL;
	}
	memory = calloc(1, sizeof(*memory));
	if (!memory)
		return NULL;
	memory->bytes = bytes;
	memory->size = size;
	memory->poison = calloc(size / CXL_LINE_BYTES / 64 + 1, sizeof(*memory->poison));
	if (!memory->poison) {
		free(memory);
		return NULL;
	}
	return memory;
}

void nupa_cxl_memory_free(struct nupa_cxl_memory *memory)
{
	if (!memory)
		return;
	snoop_free(memory->snoop);
	free(memory->poison);
	free(memory);
}
