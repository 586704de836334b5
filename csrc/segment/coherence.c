/* SPDX-License-Identifier: BSD-3-Clause
 * Instructions that write cache lines back and drop them.  Those of x86 are CLWB, CLFLUSHOPT and
 * CLFLUSH (Intel SDM, volume 2A).  Those of ARMv8 are DC CVAC and DC CIVAC, to the point of
 * coherency (Arm ARM, C5.3). */
#include "segment/coherence.h"

#include "segment/layout/limits.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <pthread.h>

#define LEAF7_EBX_CLFLUSHOPT (1u << 23)
#define LEAF7_EBX_CLWB (1u << 24)

static bool has_clflushopt, has_clwb;

static void ask_processor(void)
{
	unsigned int eax, ebx = 0, ecx, edx;

	if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
		return;
	has_clflushopt = ebx & LEAF7_EBX_CLFLUSHOPT;
	has_clwb = ebx & LEAF7_EBX_CLWB;
}

static void drop_line(const char *line)
{
	if (has_clflushopt)
		__asm__ volatile("clflushopt %0" ::"m"(*line) : "memory");
	else
		__asm__ volatile("clflush %0" ::"m"(*line) : "memory");
}

static void write_line_back(const char *line)
{
	if (has_clwb)
		__asm__ volatile("clwb %0" ::"m"(*line) : "memory");
	else
		drop_line(line);
}

static void after_flush(void)
{
	__asm__ volatile("sfence" ::: "memory");
}

/* Loads are not to run ahead of the dropping, which SFENCE would let them. */
static void after_fetch(void)
{
	__asm__ volatile("mfence" ::: "memory");
}

/* Not at load: CPUID leaves a virtual machine, which takes 14 us, and few processes need it. */
bool nupa_coherence_possible(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, ask_processor);
	return true;
}
#elif defined(__aarch64__)
static void drop_line(const char *line)
{
	__asm__ volatile("dc civac, %0" ::"r"(line) : "memory");
}

static void write_line_back(const char *line)
{
	__asm__ volatile("dc cvac, %0" ::"r"(line) : "memory");
}

static void after_flush(void)
{
	__asm__ volatile("dsb sy" ::: "memory");
}

static void after_fetch(void)
{
	after_flush();
}

bool nupa_coherence_possible(void)
{
	return true;
}
#else
static void drop_line(const char *line)
{
	(void)line;
}

static void write_line_back(const char *line)
{
	(void)line;
}

static void after_flush(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void after_fetch(void)
{
	after_flush();
}

bool nupa_coherence_possible(void)
{
	return false;
}
#endif

static void for_lines(const void *at, size_t bytes, void (*act)(const char *line))
{
	const uintptr_t end = (uintptr_t)at + bytes;

	for (uintptr_t line = (uintptr_t)at & ~(uintptr_t)(NUPA_CACHE_LINE_BYTES - 1); line < end;
	     line += NUPA_CACHE_LINE_BYTES)
		act((const char *)line);
}

static void flush(enum nupa_point point, const void *at, size_t bytes)
{
	(void)point;
	for_lines(at, bytes, write_line_back);
	after_flush();
}

static void fetch(enum nupa_point point, const void *at, size_t bytes)
{
	(void)point;
	for_lines(at, bytes, drop_line);
	after_fetch();
}

static const struct nupa_coherence instructions = { flush, fetch };
const struct nupa_coherence *nupa_coherence = &instructions;
