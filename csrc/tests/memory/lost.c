/* SPDX-License-Identifier: BSD-3-Clause
 * See lost.h. */
#define _GNU_SOURCE
#include "tests/memory/lost.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

/* Where no other mapping comes to lie, for as long as there is none, and each sanitizer lets it. */
#ifdef __SANITIZE_THREAD__
#define PLACES UINT64_C(0x4000000000)
#else
#define PLACES UINT64_C(0x200000000000)
#endif

#define ALL                                                                                        \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)

const char *const way_names[N_WAYS] = {
	"munmap",    "mremap",        "truncation",    "PROT_NONE",
	"PROT_READ", "MADV_DONTNEED", "a new mapping",
};

enum rest way_leaves(enum way way)
{
	if (way <= WAY_TRUNCATE)
		return REST_GONE;
	return way <= WAY_PROT_READ ? REST_PROTECTED : REST_REPLACED;
}

void lost_open(struct lost *lost, struct end *end, unsigned int place, enum way way, uint32_t seed)
{
	bool file = way == WAY_TRUNCATE;

	*lost = (struct lost){ .way = way, .fd = -1 };
	if (file) {
		lost->fd = memfd_create("lost", MFD_CLOEXEC);
		CHECK(lost->fd >= 0);
		CHECK_EQ(ftruncate(lost->fd, LOST_BYTES), 0);
	}
	lost->at = mmap((void *)(uintptr_t)(PLACES + place * UINT64_C(0x40000000)), LOST_BYTES,
			PROT_READ | PROT_WRITE,
			MAP_FIXED_NOREPLACE | (file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS),
			lost->fd, 0);
	CHECK(lost->at != MAP_FAILED);
	pattern_fill(lost->at, LOST_BYTES, seed);
	CHECK(lost->mr = nupa_reg_mr(end->pd, lost->at, LOST_BYTES, (uintptr_t)lost->at, ALL));
}

void lost_lose(struct lost *lost)
{
	switch (lost->way) {
	case WAY_MUNMAP:
		CHECK_EQ(munmap(lost->at, LOST_BYTES), 0);
		lost->unmapped = true;
		break;
	case WAY_MREMAP:
		lost->moved = mmap(NULL, LOST_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(lost->moved != MAP_FAILED);
		CHECK(mremap(lost->at, LOST_BYTES, LOST_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED,
			     lost->moved) == lost->moved);
		break;
	case WAY_TRUNCATE:
		CHECK_EQ(ftruncate(lost->fd, 0), 0);
		break;
	case WAY_PROT_NONE:
	case WAY_PROT_READ:
		CHECK_EQ(mprotect(lost->at, LOST_BYTES,
				  lost->way == WAY_PROT_READ ? PROT_READ : PROT_NONE),
			 0);
		break;
	case WAY_DONTNEED:
		CHECK_EQ(madvise(lost->at, LOST_BYTES, MADV_DONTNEED), 0);
		break;
	default:
		CHECK(mmap(lost->at, LOST_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == lost->at);
		break;
	}
}

void lost_unprotect(struct lost *lost)
{
	CHECK_EQ(mprotect(lost->at, LOST_BYTES, PROT_READ | PROT_WRITE), 0);
}

void lost_close(struct lost *lost)
{
	CHECK_EQ(nupa_dereg_mr(lost->mr), 0);
	if (lost->moved)
		CHECK_EQ(munmap(lost->moved, LOST_BYTES), 0);
	else if (!lost->unmapped)
		CHECK_EQ(munmap(lost->at, LOST_BYTES), 0);
	if (lost->fd >= 0)
		CHECK_EQ(close(lost->fd), 0);
}

static void on_signal(int signal_number)
{
	static const char text[] = "a signal reached the program\n";

	(void)signal_number;
	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	_exit(1);
}

void lost_expect_no_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal };

	CHECK_EQ(sigaction(SIGSEGV, &action, NULL), 0);
	CHECK_EQ(sigaction(SIGBUS, &action, NULL), 0);
}
