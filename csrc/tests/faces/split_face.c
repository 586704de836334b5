/* SPDX-License-Identifier: BSD-3-Clause
 * csrc/capture/expand/split.c as a library: tests/unit compares what it makes of an access with
 * tests/unit/packet/split.py and encode.py. */
#include "capture/expand/split.h"

#include <string.h>

#define FACE __attribute__((visibility("default")))

FACE uint32_t face_split(uint32_t access, uint64_t address, uint64_t bytes, uint32_t tag,
			 const uint8_t *data, const uint8_t *words, uint8_t *out, uint32_t room);

/* Each TLP or message of an access, behind its length in 4 bytes.  `data` has the bytes read or
 * written.  `words` has an atomic's operands (16 bytes) and the values before and after it.
 * Returns the number of bytes; 0 if there is no room. */
uint32_t face_split(uint32_t access, uint64_t address, uint64_t bytes, uint32_t tag,
		    const uint8_t *data, const uint8_t *words, uint8_t *out, uint32_t room)
{
	struct nupa_split split;
	uint32_t used = 0;

	nupa_split_begin(&split, (enum nupa_access)access, address, bytes, tag);
	while (nupa_split_next(&split)) {
		uint8_t *at = out + used + 4;
		uint32_t n, data_at;

		if (room - used < 4 + NUPA_SPLIT_MAX_BYTES)
			return 0;
		n = nupa_split_build(&split, 0x1234, 0x5678, false, at, &data_at);
		if (split.carries == NUPA_CARRIES_DATA)
			memcpy(at + data_at, data + split.offset, split.bytes);
		else if (split.carries == NUPA_CARRIES_OPERANDS)
			memcpy(at + data_at, words, (size_t)4 * split.dw);
		else if (split.carries != NUPA_CARRIES_NOTHING)
			memcpy(at + data_at, words + (split.carries == NUPA_CARRIES_OLD ? 16 : 24),
			       8);
		memcpy(out + used, &n, sizeof(n));
		used += 4 + n;
	}
	return used;
}
