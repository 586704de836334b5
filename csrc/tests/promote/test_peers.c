/* SPDX-License-Identifier: BSD-3-Clause
 * Promotion and peers.  One process registers memory of all kinds and uses it as programs do.  The
 * other one writes to it, reads it and adds to it, by the mover that serves each. */
#define _GNU_SOURCE
#include "base/atomics.h"
#include "tests/support/end.h"
#include "tests/support/promoted.h"
#include "tests/promote/uring.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define ALL ((int)(IBV_ACCESS_LOCAL_WRITE | REMOTE))

/* Orders of the memory's owner to its peer. */
struct order {
	enum ibv_wr_opcode opcode;
	uint32_t rkey, bytes, times; /* one behind the other */
	uint64_t va, value;          /* filled with its bytes; added */
};

struct owner {
	struct end *end;
	int socket;
};

/* This process's engine works for the peer after the order and before its result.  TSan, which does
 * not see the peer, sees that by the engine's lock. */
static void meet_engine(const struct owner *owner)
{
	(void)end_state(owner->end);
}

static void give(const struct owner *owner, struct order order)
{
	meet_engine(owner);
	CHECK_EQ(write(owner->socket, &order, sizeof(order)), sizeof(order));
}

/* The first eight bytes that were read, or what was there before an atomic. */
static uint64_t result(const struct owner *owner)
{
	uint64_t value;

	CHECK_EQ(read(owner->socket, &value, sizeof(value)), sizeof(value));
	meet_engine(owner);
	return value;
}

static uint64_t ask(const struct owner *owner, enum ibv_wr_opcode opcode, const struct ibv_mr *mr,
		    const void *at, uint32_t bytes, uint64_t value)
{
	give(owner, (struct order){ opcode, mr->rkey, bytes, 1, (uintptr_t)at, value });
	return result(owner);
}

static void obey(struct end *end, const struct order *order, uint32_t round)
{
	struct request request = request_of(end, order->opcode, round, 0, order->bytes);
	uint64_t va = order->va + (uint64_t)round * order->bytes;

	for (uint32_t i = 0; i + 8 <= order->bytes && order->opcode == IBV_WR_RDMA_WRITE; i += 8)
		memcpy(end->memory + i, &order->value, 8);
	if (order->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		request.wr.wr.atomic.remote_addr = va;
		request.wr.wr.atomic.rkey = order->rkey;
		request.wr.wr.atomic.compare_add = order->value;
	} else {
		request.wr.wr.rdma.remote_addr = va;
		request.wr.wr.rdma.rkey = order->rkey;
	}
	end_post(end, &request);
	cq_expect(end->send_cq, round, IBV_WC_SUCCESS);
}

/* The peer's life: until the owner closes its end. */
static void obey_all(struct end *end, int socket)
{
	struct order order;

	while (read(socket, &order, sizeof(order)) == (ssize_t)sizeof(order)) {
		uint64_t value;

		for (uint32_t round = 0; round < order.times; round++)
			obey(end, &order, round);
		memcpy(&value, end->memory, sizeof(value));
		CHECK_EQ(write(socket, &value, sizeof(value)), sizeof(value));
	}
}

static struct end *meet(struct nupa_fabric *fabric, int host, int socket)
{
	struct end_options options = end_defaults;
	struct end_address peer;
	struct end *end;
	uint8_t ready = 0;

	options.host = host;
	options.memory_bytes = (size_t)1 << 20;
	end = end_open(fabric, &options);
	CHECK_EQ(write(socket, &end->self, sizeof(end->self)), sizeof(end->self));
	CHECK_EQ(read(socket, &peer, sizeof(peer)), sizeof(peer));
	end_connect(end, &peer);
	CHECK_EQ(write(socket, &ready, 1), 1);
	CHECK_EQ(read(socket, &ready, 1), 1);
	return end;
}

/* The owner is this process, the peer a child of it. */
static void with_peer(void (*run)(const struct owner *owner))
{
	struct nupa_fabric *fabric = test_fabric();
	struct owner owner;
	int sockets[2];
	pid_t pid;

	CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		struct end *end;

		close(sockets[1]);
		end = meet(fabric, 1, sockets[0]);
		obey_all(end, sockets[0]);
		end_close(end);
		nupa_fabric_put(fabric);
		exit(0);
	}
	close(sockets[0]);
	owner = (struct owner){ meet(fabric, 0, sockets[1]), sockets[1] };
	run(&owner);
	close(owner.socket);
	CHECK_CHILD(pid);
	end_close(owner.end);
	nupa_fabric_put(fabric);
}

static struct ibv_mr *reg(const struct owner *owner, void *at, size_t bytes)
{
	struct ibv_mr *mr = nupa_reg_mr(owner->end->pd, at, bytes, (uintptr_t)at, ALL);

	CHECK(mr);
	return mr;
}

/* --- kinds of memory ----------------------------------------------------------------- */

#define SOME 3000u

static uint8_t zeros[3 * SOME];           /* .bss */
static uint8_t data[3 * SOME] = { 1, 2 }; /* .data, of a file */

/* The middle third of it is the region. */
static void is_reached(const struct owner *owner, uint8_t *at)
{
	uint64_t *word = (uint64_t *)(void *)(at + 2 * SOME - 8);
	struct ibv_mr *mr;

	memset(at, 7, 3 * SOME);
	mr = reg(owner, at + SOME, SOME);
	ask(owner, IBV_WR_RDMA_WRITE, mr, at + SOME, SOME, UINT64_C(0x0505050505050505));
	for (uint32_t i = 0; i < 3 * SOME; i++)
		CHECK_EQ(at[i], i / SOME == 1 ? 5 : 7);
	*word = 40;
	CHECK_EQ(ask(owner, IBV_WR_ATOMIC_FETCH_AND_ADD, mr, word, 8, 2), 40);
	CHECK_EQ(*word, 42);
	CHECK_EQ(ask(owner, IBV_WR_RDMA_READ, mr, word, 8, 0), 42);
	CHECK_EQ(nupa_dereg_mr(mr), 0);
	CHECK_EQ(*word, 42);
}

static void reach_all(const struct owner *owner)
{
	char name[] = "/tmp/nupa-promote-XXXXXX";
	_Alignas(8) uint8_t stack[3 * SOME];
	int fd = mkstemp(name);
	uint8_t *at;

	is_reached(owner, stack);
	is_reached(owner, zeros);
	is_reached(owner, data);
	at = malloc(3 * SOME);
	CHECK(at);
	is_reached(owner, at);
	free(at);
	at = mmap(NULL, 3 * SOME, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	is_reached(owner, at);
	CHECK(fd >= 0 && unlink(name) == 0 && ftruncate(fd, 3 * SOME) == 0);
	at = mmap(NULL, 3 * SOME, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(at != MAP_FAILED);
	is_reached(owner, at);
	close(fd);
}

TEST(memory_of_every_kind_is_reached)
{
	with_peer(reach_all);
}

/* The linker's: all of .bss, the engine's variables with the program's. */
extern uint8_t __bss_start[], _end[];

static void reach_bss(const struct owner *owner)
{
	struct ibv_mr *mr = reg(owner, __bss_start, (uintptr_t)_end - (uintptr_t)__bss_start);

	ask(owner, IBV_WR_RDMA_WRITE, mr, zeros, SOME, UINT64_C(0x0606060606060606));
	CHECK(is_filled(zeros, SOME, 6));
	is_reached(owner, zeros);
	CHECK_EQ(nupa_dereg_mr(mr), 0);
}

TEST(memory_with_the_engines_variables_is_reached)
{
	with_peer(reach_bss);
}

/* Pinned before its registration, and while it is registered. */
static void reach_pinned(const struct owner *owner)
{
	uint8_t *before = filled_pages(4, 1), *while_registered = filled_pages(4, 1);
	struct ibv_mr *mr = reg(owner, while_registered, 3 * SOME);
	struct uring ring;

	uring_open(&ring);
	uring_pin(&ring, before, 3 * SOME);
	is_reached(owner, before);
	uring_store(&ring, before, 512, 9);
	CHECK(is_filled(before, 512, 9));
	uring_unpin(&ring);
	uring_pin(&ring, while_registered, 3 * SOME);
	CHECK_EQ(nupa_dereg_mr(mr), 0);
	is_reached(owner, while_registered);
	uring_store(&ring, while_registered, 512, 9);
	CHECK(is_filled(while_registered, 512, 9));
	uring_close(&ring);
}

TEST(memory_that_is_pinned_is_reached)
{
	if (uring_works())
		with_peer(reach_pinned);
}

/* --- fork ---------------------------------------------------------------------------- */

static void fork_with_region(const struct owner *owner)
{
	_Alignas(8) static uint8_t in_bss[3 * SOME];
	int to_child[2], to_parent[2];
	uint64_t *word = (uint64_t *)(void *)(in_bss + SOME);
	struct ibv_mr *mr = reg(owner, in_bss + SOME, SOME);
	uint8_t byte = 0;
	pid_t pid;

	CHECK_EQ(pipe(to_child), 0);
	CHECK_EQ(pipe(to_parent), 0);
	ask(owner, IBV_WR_RDMA_WRITE, mr, word, 8, 10);
	in_bss[0] = 1;
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK_EQ(*word, 10);
		*word = 1000;
		in_bss[1] = 2;
		CHECK_EQ(write(to_parent[1], &byte, 1), 1);
		CHECK_EQ(read(to_child[0], &byte, 1), 1);
		CHECK_EQ(*word, 1000);
		CHECK_EQ(in_bss[0] + in_bss[1], 3);
		_exit(0);
	}
	CHECK_EQ(read(to_parent[0], &byte, 1), 1);
	CHECK_EQ(*word, 10);
	CHECK_EQ(in_bss[1], 0);
	ask(owner, IBV_WR_RDMA_WRITE, mr, word, 8, 11);
	CHECK_EQ(*word, 11);
	in_bss[0] = 4;
	CHECK_EQ(ask(owner, IBV_WR_ATOMIC_FETCH_AND_ADD, mr, word, 8, 1), 11);
	CHECK_EQ(*word, 12);
	CHECK_EQ(write(to_child[1], &byte, 1), 1);
	CHECK_CHILD(pid);
	CHECK_EQ(nupa_dereg_mr(mr), 0);
	CHECK_EQ(*word, 12);
}

TEST(a_fork_takes_a_copy_and_leaves_peers_the_parents_memory)
{
	with_peer(fork_with_region);
}

/* The peer writes all the time, while this process forks. */
static void fork_under_fire(const struct owner *owner)
{
	enum { WORDS = 8192, FORKS = 40 };
	uint64_t *words = calloc(WORDS, sizeof(*words));
	struct ibv_mr *mr;

	CHECK(words);
	mr = reg(owner, words, WORDS * sizeof(*words));
	give(owner, (struct order){ IBV_WR_RDMA_WRITE, mr->rkey, 8, WORDS, (uintptr_t)words, 9 });
	for (int i = 0; i < FORKS; i++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0)
			_exit(0);
		CHECK_CHILD(pid);
	}
	(void)result(owner);
	for (uint32_t i = 0; i < WORDS; i++)
		CHECK_EQ(words[i], 9);
	CHECK_EQ(nupa_dereg_mr(mr), 0);
	free(words);
}

TEST(no_write_of_a_peer_is_lost_to_a_fork)
{
	with_peer(fork_under_fire);
}

/* --- regions that overlap ------------------------------------------------------------ */

#define PART_BYTES ((size_t)256 << 10)

struct registrar {
	const struct owner *owner;
	uint8_t *at;
	bool stop;
};

static void *register_part(void *arg)
{
	struct registrar *registrar = arg;

	while (!nupa_load_relaxed(&registrar->stop))
		CHECK_EQ(nupa_dereg_mr(reg(registrar->owner, registrar->at, PART_BYTES)), 0);
	return NULL;
}

/* The peer writes by a region that cannot be promoted whole, and so by system calls.  Meanwhile
 * part of it is promoted for another one, and made private again. */
static void promote_under_fire(const struct owner *owner)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct registrar registrar = { .owner = owner };
	const uint64_t *words;
	struct ibv_mr *wide;
	pthread_t thread;

	registrar.at = mmap(NULL, PART_BYTES + page, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(registrar.at != MAP_FAILED);
	words = (const uint64_t *)(const void *)registrar.at;
	memset(registrar.at, 0, PART_BYTES + page);
	CHECK_EQ(mprotect(registrar.at + PART_BYTES, page, PROT_READ), 0);
	wide = reg(owner, registrar.at, PART_BYTES + page);
	CHECK_EQ(pthread_create(&thread, NULL, register_part, &registrar), 0);
	for (uint64_t round = 1; round <= 2000; round++) {
		ask(owner, IBV_WR_RDMA_WRITE, wide, words, (uint32_t)PART_BYTES, round);
		for (size_t i = 0; i < PART_BYTES / sizeof(*words); i++)
			CHECK_EQ(words[i], round);
	}
	nupa_store_relaxed(&registrar.stop, true);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(nupa_dereg_mr(wide), 0);
	CHECK_EQ(munmap(registrar.at, PART_BYTES + page), 0);
}

TEST(no_write_of_a_peer_is_lost_to_another_registration)
{
	with_peer(promote_under_fire);
}
