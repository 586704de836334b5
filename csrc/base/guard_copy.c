/* SPDX-License-Identifier: BSD-3-Clause
 * Copies of more than 32 bytes that survive a fault (guard.h).  To be as fast as memcpy they use
 * the widest available moves, or string moves where the processor has fast ones.  And copies by the
 * kernel, of memory that may not be present. */
#define _GNU_SOURCE
#include "base/guard.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* From this size on string moves are faster.  Below, the code behind them waits for them. */
#define STRING_MIN_BYTES 6144u

enum width { WIDTH_UNKNOWN, WIDTH_16, WIDTH_32 };

static struct {
	uint8_t width;   /* of moves; set last */
	uint8_t strings; /* string moves are fast */
} processor;

static uint8_t look_at_processor(void)
{
	uint8_t width = __builtin_cpu_supports("avx2") ? WIDTH_32 : WIDTH_16;
	unsigned int eax, ebx = 0, ecx, edx;

	if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
		nupa_store_relaxed(&processor.strings, (uint8_t)(ebx >> 9 & 1)); /* ERMS */
	nupa_store_release(&processor.width, width);
	return width;
}

/* Moves of *w* bytes by registers *r*0 to *r*8.  The first half counts from the front and the other
 * one from the end, so that they overlap where there are fewer bytes. */
/* clang-format off */
#define FRONT(move, r, w, i) move " " #i "*" w "(%[from]), %%" r #i "\n\t"
#define BACK(move, r, w, i, j) move " -" #j "*" w "(%[from],%[n]), %%" r #i "\n\t"
#define TO_FRONT(move, r, w, i) move " %%" r #i ", " #i "*" w "(%[to])\n\t"
#define TO_BACK(move, r, w, i, j) move " %%" r #i ", -" #j "*" w "(%[to],%[n])\n\t"

#define COPY_2(m, r, w) \
	FRONT(m, r, w, 0) BACK(m, r, w, 1, 1) \
	TO_FRONT(m, r, w, 0) TO_BACK(m, r, w, 1, 1)

#define COPY_4(m, r, w) \
	FRONT(m, r, w, 0) FRONT(m, r, w, 1) BACK(m, r, w, 2, 2) BACK(m, r, w, 3, 1) \
	TO_FRONT(m, r, w, 0) TO_FRONT(m, r, w, 1) TO_BACK(m, r, w, 2, 2) TO_BACK(m, r, w, 3, 1)

#define COPY_8(m, r, w) \
	FRONT(m, r, w, 0) FRONT(m, r, w, 1) FRONT(m, r, w, 2) FRONT(m, r, w, 3) \
	BACK(m, r, w, 4, 4) BACK(m, r, w, 5, 3) BACK(m, r, w, 6, 2) BACK(m, r, w, 7, 1) \
	TO_FRONT(m, r, w, 0) TO_FRONT(m, r, w, 1) TO_FRONT(m, r, w, 2) TO_FRONT(m, r, w, 3) \
	TO_BACK(m, r, w, 4, 4) TO_BACK(m, r, w, 5, 3) TO_BACK(m, r, w, 6, 2) TO_BACK(m, r, w, 7, 1)

/* One at the front and four at the end; between them fours that are aligned at the target. */
#define COPY_MANY(m, aligned, r, w, w4) \
	BACK(m, r, w, 4, 4) BACK(m, r, w, 5, 3) BACK(m, r, w, 6, 2) BACK(m, r, w, 7, 1) \
	m " (%[from]), %%" r "8\n\t" \
	"leaq -" w4 "(%[to],%[n]), %[n]\n\t" \
	m " %%" r "8, (%[to])\n\t" \
	"subq %[to], %[from]\n\t" \
	"andq $-" w ", %[to]\n\t" \
	"addq $" w ", %[to]\n\t" \
	"addq %[to], %[from]\n" \
	"1:\t" FRONT(m, r, w, 0) FRONT(m, r, w, 1) FRONT(m, r, w, 2) FRONT(m, r, w, 3) \
	"addq $" w4 ", %[from]\n\t" \
	TO_FRONT(aligned, r, w, 0) TO_FRONT(aligned, r, w, 1) \
	TO_FRONT(aligned, r, w, 2) TO_FRONT(aligned, r, w, 3) \
	"addq $" w4 ", %[to]\n\t" \
	"cmpq %[n], %[to]\n\tjb 1b\n\t" \
	m " %%" r "4, (%[n])\n\t" m " %%" r "5, " w "(%[n])\n\t" \
	m " %%" r "6, 2*" w "(%[n])\n\t" m " %%" r "7, 3*" w "(%[n])"
/* clang-format on */

#define MOVE(instructions, finish)                                                                 \
	__asm__ volatile(NUPA_GUARD(instructions) finish                                           \
			 : [ok] "+r"(ok), [to] "+&r"(to), [from] "+&r"(from), [n] "+&r"(bytes)     \
			 :                                                                         \
			 : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", \
			   "xmm7", "xmm8")

static bool copy_by_16(void *to, const void *from, size_t bytes)
{
	uint32_t ok = 1;

	if (bytes <= 64)
		MOVE(COPY_4("movups", "xmm", "16"), "");
	else if (bytes <= 128)
		MOVE(COPY_8("movups", "xmm", "16"), "");
	else
		MOVE(COPY_MANY("movups", "movaps", "xmm", "16", "64"), "");
	return ok;
}

static bool copy_by_32(void *to, const void *from, size_t bytes)
{
	uint32_t ok = 1;

	if (bytes <= 64)
		MOVE(COPY_2("vmovdqu", "ymm", "32"), "\n\tvzeroupper");
	else if (bytes <= 128)
		MOVE(COPY_4("vmovdqu", "ymm", "32"), "\n\tvzeroupper");
	else if (bytes <= 256)
		MOVE(COPY_8("vmovdqu", "ymm", "32"), "\n\tvzeroupper");
	else
		MOVE(COPY_MANY("vmovdqu", "vmovdqa", "ymm", "32", "128"), "\n\tvzeroupper");
	return ok;
}

bool nupa_guard_copy_long(void *to, const void *from, size_t bytes)
{
	uint8_t width = nupa_load_acquire(&processor.width);
	uint32_t ok = 1;

	if (__builtin_expect(width == WIDTH_UNKNOWN, 0))
		width = look_at_processor();
	if (bytes < STRING_MIN_BYTES || !processor.strings)
		return width == WIDTH_32 ? copy_by_32(to, from, bytes)
					 : copy_by_16(to, from, bytes);
	__asm__ volatile(NUPA_GUARD("rep movsb")
			 : [ok] "+r"(ok), "+D"(to), "+S"(from), "+c"(bytes)
			 :
			 : "memory");
	return ok;
}

#elif defined(__aarch64__)

bool nupa_guard_copy_long(void *to, const void *from, size_t bytes)
{
	const uint8_t *last_from = (const uint8_t *)from + bytes - 32;
	uint8_t *last_to = (uint8_t *)to + bytes - 32;
	uint32_t ok = 1;

	__asm__ volatile(NUPA_GUARD("ldp q4, q5, [%[last_from]]\n\t"
				    "1:\tcmp %[n], #64\n\tb.lo 2f\n\t"
				    "ldp q0, q1, [%[from]]\n\t"
				    "ldp q2, q3, [%[from], #32]\n\t"
				    "stp q0, q1, [%[to]]\n\t"
				    "stp q2, q3, [%[to], #32]\n\t"
				    "add %[from], %[from], #64\n\tadd %[to], %[to], #64\n\t"
				    "sub %[n], %[n], #64\n\tb 1b\n\t"
				    "2:\tcmp %[n], #32\n\tb.lo 3f\n\t"
				    "ldp q0, q1, [%[from]]\n\t"
				    "stp q0, q1, [%[to]]\n\t"
				    "3:\tstp q4, q5, [%[last_to]]")
			 : [ok] "+r"(ok), [to] "+&r"(to), [from] "+&r"(from), [n] "+&r"(bytes)
			 : [last_from] "r"(last_from), [last_to] "r"(last_to)
			 : "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5");
	return ok;
}

#else

bool nupa_guard_copy_long(void *to, const void *from, size_t bytes)
{
	return nupa_memory_copy(to, from, bytes);
}
#endif

bool nupa_memory_copy(void *to, const void *from, size_t bytes)
{
	uint8_t *at = to;
	const uint8_t *source = from;

	while (bytes) {
		struct iovec local = { at, bytes };
		struct iovec remote = { (void *)(uintptr_t)source, bytes };
		ssize_t moved = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);

		if (moved > 0) {
			at += moved;
			source += moved;
			bytes -= (size_t)moved;
			continue;
		}
		if (moved < 0 && errno == EFAULT)
			return false;
		/* Forbidden here: ask first, then copy. */
		if (!nupa_memory_present(source, bytes, false) ||
		    !nupa_memory_present(at, bytes, true))
			return false;
		return nupa_guard_copy(at, source, bytes);
	}
	return true;
}
