/* SPDX-License-Identifier: BSD-3-Clause
 * Copies into and out of the program's memory that survive a fault.  A program may unmap, protect
 * or truncate registered memory at any time.
 *
 *   G1  Each instruction here that touches such memory is in the table of its module: where it
 *       begins and ends, and where to resume when it faults.
 *   G2  The handler of SIGSEGV and SIGBUS consults only the table.  All other faults are those of
 *       the program, whose handler is called (guard.c).
 *
 * A copy that does not fault costs no more than memcpy.  A copy that faults may have done any part;
 * reach.h resumes from there. */
#ifndef NUPA_GUARD_H
#define NUPA_GUARD_H

#include "base/atomics.h"
#include "base/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* guard.c.  The handler: at the first attachment; again where the program may have replaced it. */
void nupa_guard_install(void);
void nupa_guard_renew(void);
/* The kernel ends a process whose thread faults while it blocks the signal: once in each thread. */
void nupa_guard_admit_thread(void);

/* guard_copy.c: of more than 32 bytes. */
bool nupa_guard_copy_long(void *to, const void *from, size_t bytes);
/* By the kernel, which makes pages present; false: a byte of either side is not there. */
bool nupa_memory_copy(void *to, const void *from, size_t bytes);

#if defined(__x86_64__) || defined(__aarch64__)
#define NUPA_GUARD_TABLE 1

#define NUPA_GUARD_ENTRY                                                                           \
	".pushsection nupa_guards,\"a\"\n\t.balign 4\n\t"                                          \
	".long 661b - .\n\t.long 662b - .\n\t.long 663b - .\n\t.popsection\n"
#endif

#if defined(__x86_64__)
/* `ok` is an operand of 32 bits, 1 before. */
#define NUPA_GUARD(instructions)                                                                   \
	"661:\n\t" instructions "\n662:\n\t"                                                       \
	".subsection 1\n663:\n\txorl %[ok], %[ok]\n\tjmp 662b\n\t.previous\n\t" NUPA_GUARD_ENTRY

/* Two loads and two stores of a width, which may overlap: for bytes from the width to its double.
 */
#define NUPA_GUARD_PAIR(move, width, reg, type)                                                    \
	do {                                                                                       \
		type nupa_low, nupa_high;                                                          \
		__asm__ volatile(                                                                  \
		    NUPA_GUARD(move " (%[from]), %[low]\n\t" move " -" width                       \
				    "(%[from],%[n]), %[high]\n\t" move " %[low], (%[to])\n\t" move \
				    " %[high], -" width "(%[to],%[n])")                            \
		    : [ok] "+r"(ok), [low] "=&" reg(nupa_low), [high] "=&" reg(nupa_high)          \
		    : [to] "r"(to), [from] "r"(from), [n] "r"(bytes)                               \
		    : "memory");                                                                   \
	} while (0)

typedef long long nupa_guard_vector __attribute__((vector_size(16)));

static inline bool nupa_guard_copy_small(void *to, const void *from, uint64_t bytes)
{
	uint32_t ok = 1;

	if (bytes >= 16) {
		NUPA_GUARD_PAIR("movups", "16", "x", nupa_guard_vector);
	} else if (bytes >= 8) {
		NUPA_GUARD_PAIR("movq", "8", "r", uint64_t);
	} else if (bytes >= 4) {
		NUPA_GUARD_PAIR("movl", "4", "r", uint32_t);
	} else if (bytes >= 2) {
		NUPA_GUARD_PAIR("movw", "2", "r", uint16_t);
	} else if (bytes) {
		uint8_t byte;

		__asm__ volatile(NUPA_GUARD("movb (%[from]), %[byte]\n\tmovb %[byte], (%[to])")
				 : [ok] "+r"(ok), [byte] "=&q"(byte)
				 : [to] "r"(to), [from] "r"(from)
				 : "memory");
	}
	return ok;
}

#define NUPA_GUARD_MOVE(move, reg, type, at)                                                       \
	do {                                                                                       \
		type nupa_value;                                                                   \
		__asm__ volatile(                                                                  \
		    NUPA_GUARD(move " (%[from]), %[value]\n\t" move " %[value], (%[to])")          \
		    : [ok] "+r"(ok), [value] "=&" reg(nupa_value)                                  \
		    : [to] "r"((uint8_t *)to + (at)), [from] "r"((const uint8_t *)from + (at))     \
		    : "memory");                                                                   \
	} while (0)
#define NUPA_GUARD_MOVE_8(at) NUPA_GUARD_MOVE("movq", "r", uint64_t, at)
#define NUPA_GUARD_MOVE_4(at) NUPA_GUARD_MOVE("movl", "r", uint32_t, at)
#define NUPA_GUARD_MOVE_2(at) NUPA_GUARD_MOVE("movw", "r", uint16_t, at)
#define NUPA_GUARD_MOVE_1(at) NUPA_GUARD_MOVE("movb", "q", uint8_t, at)

static inline bool nupa_guard_store(uint64_t *word, uint64_t value)
{
	uint32_t ok = 1;

	__asm__ volatile(NUPA_GUARD("movq %[value], (%[word])")
			 : [ok] "+r"(ok)
			 : [word] "r"(word), [value] "r"(value)
			 : "memory");
	return ok;
}

static inline bool nupa_guard_cas(uint64_t *word, uint64_t *expected, uint64_t swap)
{
	uint32_t ok = 1;

	__asm__ volatile(NUPA_GUARD("lock cmpxchgq %[swap], (%[word])")
			 : [ok] "+r"(ok), [expected] "+a"(*expected)
			 : [word] "r"(word), [swap] "r"(swap)
			 : "memory", "cc");
	return ok;
}

static inline bool nupa_guard_add(uint64_t *word, uint64_t add, uint64_t *original)
{
	uint32_t ok = 1;

	__asm__ volatile(NUPA_GUARD("lock xaddq %[add], (%[word])")
			 : [ok] "+r"(ok), [add] "+r"(add)
			 : [word] "r"(word)
			 : "memory", "cc");
	*original = add;
	return ok;
}

#elif defined(__aarch64__)
#define NUPA_GUARD(instructions)                                                                   \
	"661:\n\t" instructions "\n662:\n\t"                                                       \
	".subsection 1\n663:\n\tmov %w[ok], #0\n\tb 662b\n\t.previous\n\t" NUPA_GUARD_ENTRY

#define NUPA_GUARD_PAIR(suffix, operand, reg, type, width)                                         \
	do {                                                                                       \
		type nupa_low, nupa_high;                                                          \
		__asm__ volatile(                                                                  \
		    NUPA_GUARD("ldr" suffix " %" operand "[low], [%[from]]\n\t"                    \
			       "ldr" suffix " %" operand "[high], [%[from_high]]\n\t"              \
			       "str" suffix " %" operand "[low], [%[to]]\n\t"                      \
			       "str" suffix " %" operand "[high], [%[to_high]]")                   \
		    : [ok] "+r"(ok), [low] "=&" reg(nupa_low), [high] "=&" reg(nupa_high)          \
		    : [to] "r"(to), [from] "r"(from),                                              \
		      [from_high] "r"((const uint8_t *)from + bytes - (width)),                    \
		      [to_high] "r"((uint8_t *)to + bytes - (width))                               \
		    : "memory");                                                                   \
	} while (0)

typedef long long nupa_guard_vector __attribute__((vector_size(16)));

#define NUPA_GUARD_MOVE(suffix, operand, type, at)                                                 \
	do {                                                                                       \
		type nupa_value;                                                                   \
		__asm__ volatile(                                                                  \
		    NUPA_GUARD("ldr" suffix " %" operand "[value], [%[from]]\n\t"                  \
			       "str" suffix " %" operand "[value], [%[to]]")                       \
		    : [ok] "+r"(ok), [value] "=&r"(nupa_value)                                     \
		    : [to] "r"((uint8_t *)to + (at)), [from] "r"((const uint8_t *)from + (at))     \
		    : "memory");                                                                   \
	} while (0)
#define NUPA_GUARD_MOVE_8(at) NUPA_GUARD_MOVE("", "x", uint64_t, at)
#define NUPA_GUARD_MOVE_4(at) NUPA_GUARD_MOVE("", "w", uint32_t, at)
#define NUPA_GUARD_MOVE_2(at) NUPA_GUARD_MOVE("h", "w", uint32_t, at)
#define NUPA_GUARD_MOVE_1(at) NUPA_GUARD_MOVE("b", "w", uint32_t, at)

static inline bool nupa_guard_copy_small(void *to, const void *from, uint64_t bytes)
{
	uint32_t ok = 1;

	if (bytes >= 16)
		NUPA_GUARD_PAIR("", "q", "w", nupa_guard_vector, 16);
	else if (bytes >= 8)
		NUPA_GUARD_PAIR("", "x", "r", uint64_t, 8);
	else if (bytes >= 4)
		NUPA_GUARD_PAIR("", "w", "r", uint32_t, 4);
	else if (bytes >= 2)
		NUPA_GUARD_PAIR("h", "w", "r", uint32_t, 2);
	else if (bytes)
		NUPA_GUARD_MOVE_1(0);
	return ok;
}

static inline bool nupa_guard_store(uint64_t *word, uint64_t value)
{
	uint32_t ok = 1;

	__asm__ volatile(NUPA_GUARD("stlr %[value], [%[word]]")
			 : [ok] "+r"(ok)
			 : [word] "r"(word), [value] "r"(value)
			 : "memory");
	return ok;
}

static inline bool nupa_guard_cas(uint64_t *word, uint64_t *expected, uint64_t swap)
{
	uint64_t found, put;
	uint32_t ok = 1, failed;

	/* It stores in any case, as x86 does: memory that cannot be written is an error. */
	__asm__ volatile(
	    NUPA_GUARD("660:\tldaxr %[found], [%[word]]\n\t"
		       "cmp %[found], %[expected]\n\t"
		       "csel %[put], %[swap], %[found], eq\n\t"
		       "stlxr %w[failed], %[put], [%[word]]\n\t"
		       "cbnz %w[failed], 660b")
	    : [ok] "+r"(ok), [found] "=&r"(found), [put] "=&r"(put), [failed] "=&r"(failed)
	    : [word] "r"(word), [swap] "r"(swap), [expected] "r"(*expected)
	    : "memory", "cc");
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (ok)
		*expected = found;
	return ok;
}

static inline bool nupa_guard_add(uint64_t *word, uint64_t add, uint64_t *original)
{
	uint64_t found, sum;
	uint32_t ok = 1, failed;

	__asm__ volatile(
	    NUPA_GUARD("660:\tldaxr %[found], [%[word]]\n\t"
		       "add %[sum], %[found], %[add]\n\t"
		       "stlxr %w[failed], %[sum], [%[word]]\n\t"
		       "cbnz %w[failed], 660b")
	    : [ok] "+r"(ok), [found] "=&r"(found), [sum] "=&r"(sum), [failed] "=&r"(failed)
	    : [word] "r"(word), [add] "r"(add)
	    : "memory");
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (ok)
		*original = found;
	return ok;
}

#else /* The kernel is asked each time. */

static inline bool nupa_guard_copy_small(void *to, const void *from, uint64_t bytes)
{
	return nupa_memory_copy(to, from, bytes);
}

static inline bool nupa_guard_store(uint64_t *word, uint64_t value)
{
	if (!nupa_memory_present(word, sizeof(*word), true))
		return false;
	nupa_store_release(word, value);
	return true;
}

static inline bool nupa_guard_cas(uint64_t *word, uint64_t *expected, uint64_t swap)
{
	if (!nupa_memory_present(word, sizeof(*word), true))
		return false;
	nupa_cas_seq(word, expected, swap);
	return true;
}

static inline bool nupa_guard_add(uint64_t *word, uint64_t add, uint64_t *original)
{
	if (!nupa_memory_present(word, sizeof(*word), true))
		return false;
	*original = nupa_fetch_add_seq(word, add);
	return true;
}
#endif

/* memcpy; false: a byte of either is not accessible. */
static inline bool nupa_guard_copy(void *to, const void *from, uint64_t bytes)
{
	if (__builtin_expect(bytes <= 32, 1))
		return nupa_guard_copy_small(to, from, bytes);
	return nupa_guard_copy_long(to, from, bytes);
}

/* Up to 8 bytes that lie in one aligned word, ascending. */
static inline bool nupa_guard_write_word(void *to, const void *from, uint64_t bytes)
{
#ifdef NUPA_GUARD_TABLE
	uint32_t ok = 1;

	if (__builtin_expect(bytes == 8, 1)) {
		NUPA_GUARD_MOVE_8(0);
		return ok;
	}
	if (bytes & 4) {
		NUPA_GUARD_MOVE_4(0);
		__atomic_thread_fence(__ATOMIC_RELEASE);
	}
	if (bytes & 2) {
		NUPA_GUARD_MOVE_2(bytes & 4);
		__atomic_thread_fence(__ATOMIC_RELEASE);
	}
	if (bytes & 1)
		NUPA_GUARD_MOVE_1(bytes & 6);
	return ok;
#else
	return nupa_memory_copy(to, from, bytes);
#endif
}

/* Of bytes that end at *to* + *bytes*: how many are stored last.  They lie in one aligned word, so
 * that no boundary of a line or page is between them. */
static inline uint64_t nupa_guard_last(const void *to, uint64_t bytes)
{
	uint64_t last = (((uintptr_t)to + bytes - 1) & 7) + 1;

	return last < bytes ? last : bytes;
}

/* The same with the last byte last: programs poll it, as they may with hardware that writes in
 * order.  Plain stores are not reordered with the string moves before them. */
static inline bool nupa_guard_write(void *to, const void *from, uint64_t bytes)
{
	uint64_t last, before;

	if (__builtin_expect(bytes <= 8 - ((uintptr_t)to & 7), 1))
		return nupa_guard_write_word(to, from, bytes);
	last = nupa_guard_last(to, bytes);
	before = bytes - last;
	if (!nupa_guard_copy(to, from, before))
		return false;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	return nupa_guard_write_word((uint8_t *)to + before, (const uint8_t *)from + before, last);
}

#endif
