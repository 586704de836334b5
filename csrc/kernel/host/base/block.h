/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 * Copies of blocks.  A kernel's memcpy is a loop where the processor has no fast short moves;
 * "rep movsq" takes half its time there, also where an emulator executes it. */
#ifndef NUPA_KERNEL_BLOCK_H
#define NUPA_KERNEL_BLOCK_H

#include <linux/kasan-checks.h>
#include <linux/string.h>
#ifdef CONFIG_X86_64
#include <asm/cpufeature.h>
#endif

#define NUPA_BLOCK_LEAST_BYTES 512u /* shorter ones do not pay for the start */

static inline void nupa_block_copy(void *to, const void *from, size_t bytes)
{
#ifdef CONFIG_X86_64
	if (bytes >= NUPA_BLOCK_LEAST_BYTES && !static_cpu_has(X86_FEATURE_FSRM)) {
		size_t words = bytes / sizeof(uint64_t);

		kasan_check_read(from, bytes);
		kasan_check_write(to, bytes);
		__asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
		bytes %= sizeof(uint64_t);
	}
#endif
	memcpy(to, from, bytes);
}

#endif
