/* SPDX-License-Identifier: BSD-3-Clause
 * Advice that allocators give on memory that is or was registered: prints a line for
 * each that is as without registration. */
#include <infiniband/verbs.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096
#define PAGES 16
#define CHUNK (1 << 20)

static struct ibv_pd *pd;

static struct ibv_mr *reg(void *at, size_t bytes)
{
	struct ibv_mr *mr =
	    ibv_reg_mr(pd, at, bytes,
		       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);

	if (!mr) {
		perror("ibv_reg_mr");
		exit(1);
	}
	return mr;
}

static int is_filled(const unsigned char *at, size_t bytes, int with)
{
	for (size_t i = 0; i < bytes; i++)
		if (at[i] != with)
			return 0;
	return 1;
}

static void say(const char *what, int so)
{
	printf("%s: %s\n", what, so ? "yes" : "NO");
}

static void give_back_pages(int advice, const char *name)
{
	unsigned char *at =
	    mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *first, *second;
	char what[80];

	memset(at, 1, PAGES * PAGE);
	first = reg(at + 2 * PAGE, 3 * PAGE);
	second = reg(at + 8 * PAGE, 3 * PAGE);
	/* From private memory over promoted, private and promoted into private. */
	if (madvise(at + PAGE, 9 * PAGE, advice))
		perror("madvise");
	snprintf(what, sizeof(what), "%s of registered pages gives zeros", name);
	say(what, is_filled(at + 2 * PAGE, 3 * PAGE, 0) && is_filled(at + 8 * PAGE, 2 * PAGE, 0));
	snprintf(what, sizeof(what), "%s leaves the others", name);
	say(what, is_filled(at, PAGE, 1) && is_filled(at + 10 * PAGE, 6 * PAGE, 1));
	memset(at, 2, PAGES * PAGE);
	ibv_dereg_mr(first);
	ibv_dereg_mr(second);
	snprintf(what, sizeof(what), "and what is stored after %s stays", name);
	say(what, is_filled(at, PAGES * PAGE, 2));
	munmap(at, PAGES * PAGE);
}

/* In a thread malloc has an arena of its own, which shrinks by madvise, and knows what it gave back
 * to be zeros. */
static void *use_arena(void *arg)
{
	unsigned char *keep = malloc(CHUNK), *at = malloc(CHUNK);
	int zeros = 1, rounds;

	for (rounds = 0; rounds < 5; rounds++) {
		struct ibv_mr *mr = reg(at, CHUNK);

		memset(at, 3, CHUNK);
		ibv_dereg_mr(mr);
		free(at);
		at = calloc(1, CHUNK);
		zeros &= is_filled(at, CHUNK, 0);
	}
	say("calloc of what was registered and freed gives zeros", zeros);
	free(at);
	free(keep);
	return arg;
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && *list ? ibv_open_device(*list) : NULL;
	pthread_t thread;

	if (!context) {
		fprintf(stderr, "no device\n");
		return 1;
	}
	pd = ibv_alloc_pd(context);
	mallopt(M_MMAP_THRESHOLD, 4 * CHUNK);
	give_back_pages(MADV_DONTNEED, "MADV_DONTNEED");
	pthread_create(&thread, NULL, use_arena, NULL);
	pthread_join(thread, NULL);
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
	ibv_free_device_list(list);
	return 0;
}
