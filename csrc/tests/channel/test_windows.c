/* SPDX-License-Identifier: BSD-3-Clause
 * Windows on many regions of a peer: all stay open, few mappings serve them, and none outlives its
 * regions for long. */
#include "engine/channel/mapping.h"
#include "tests/support/end.h"
#include "tests/support/promoted.h"

#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define REGIONS 1000u
#define REGION_BYTES 512u

enum wish {
	PIECES_OF_ONE, /* so many regions in one buffer, which is a region, too */
	SEPARATE,      /* so many regions, each in memory of its own */
	UNTOUCHED,     /* one of so many bytes of which no page is there */
	END_LAST,      /* the region that was made last ends */
	MEMFD_BYTES,   /* how much memory there is in the owner's memfd */
	WORD,          /* the first word of the region with this number */
	DESCRIPTOR,    /* of a socket; 1: of a memfd that may shrink */
};

struct order {
	enum wish wish;
	uint32_t n;
};

struct found {
	uint64_t va;
	uint32_t rkey;
};

/* --- the owner of the regions, a process of its own ---------------------------------- */

struct owner {
	struct end *end;
	int socket;
	struct ibv_mr *mr[REGIONS];
	uint32_t n;
};

static void add(struct owner *owner, uint8_t *at, size_t bytes)
{
	struct ibv_mr *mr =
	    nupa_reg_mr(owner->end->pd, at, bytes, (uintptr_t)at, (int)end_defaults.access);
	struct found found;

	CHECK(mr && owner->n < REGIONS);
	owner->mr[owner->n++] = mr;
	found = (struct found){ (uintptr_t)at, mr->rkey };
	CHECK_EQ(write(owner->socket, &found, sizeof(found)), sizeof(found));
}

static void obey(struct owner *owner, const struct order *order)
{
	uint64_t answer = 0;
	uint8_t *at;

	switch (order->wish) {
	case PIECES_OF_ONE:
		at = filled_pages(order->n * REGION_BYTES / page() + 1, 1);
		CHECK(nupa_reg_mr(owner->end->pd, at, order->n * REGION_BYTES, (uintptr_t)at,
				  (int)end_defaults.access));
		for (uint32_t i = 0; i < order->n; i++)
			add(owner, at + i * REGION_BYTES, REGION_BYTES);
		return;
	case SEPARATE:
		for (uint32_t i = 0; i < order->n; i++)
			add(owner, filled_pages(1, 1), page());
		return;
	case UNTOUCHED:
		add(owner, map_pages(order->n / page(), PROT_READ | PROT_WRITE), order->n);
		return;
	case END_LAST:
		CHECK(owner->n > 0 && owner->n <= REGIONS);
		owner->n--;
		at = owner->mr[owner->n]->addr;
		CHECK_EQ(nupa_dereg_mr(owner->mr[owner->n]), 0);
		CHECK_EQ(munmap(at, page()), 0);
		break;
	case MEMFD_BYTES:
		answer = bytes_in_memfd();
		break;
	case DESCRIPTOR:
		answer = (uint64_t)(order->n ? memfd_create("unsealed", MFD_ALLOW_SEALING)
					     : owner->socket);
		CHECK(!order->n || ftruncate((int)answer, (off_t)page()) == 0);
		break;
	case WORD:
		(void)end_state(owner->end); /* TSan, which does not see the peer, sees the lock */
		memcpy(&answer, owner->mr[order->n]->addr, sizeof(answer));
		break;
	}
	CHECK_EQ(write(owner->socket, &answer, sizeof(answer)), sizeof(answer));
}

static struct end *meet(struct nupa_fabric *fabric, int host, int socket)
{
	struct end_options options = end_defaults;
	struct end_address peer;
	struct end *end;

	options.host = host;
	end = end_open(fabric, &options);
	CHECK_EQ(write(socket, &end->self, sizeof(end->self)), sizeof(end->self));
	CHECK_EQ(read(socket, &peer, sizeof(peer)), sizeof(peer));
	end_connect(end, &peer);
	return end;
}

/* --- this process -------------------------------------------------------------------- */

struct user {
	struct nupa_fabric *fabric;
	struct end *end;
	int socket;
	pid_t pid;
	struct found found[REGIONS];
	uint32_t n;
};

static void user_close(struct user *user)
{
	close(user->socket);
	CHECK_CHILD(user->pid);
	end_close(user->end);
	nupa_fabric_put(user->fabric);
}

/* False: no process maps another one's memory here, which is said. */
static bool user_open(struct user *user)
{
	int sockets[2];

	*user = (struct user){ .fabric = test_fabric() };
	CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
	user->pid = fork();
	CHECK(user->pid >= 0);
	if (user->pid == 0) {
		struct owner owner = { .socket = sockets[0] };
		struct order order;

		close(sockets[1]);
		owner.end = meet(user->fabric, 1, owner.socket);
		while (read(owner.socket, &order, sizeof(order)) == (ssize_t)sizeof(order))
			obey(&owner, &order);
		_exit(0);
	}
	close(sockets[0]);
	user->socket = sockets[1];
	user->end = meet(user->fabric, 0, user->socket);
	/* After the fork: it makes this process's memfd. */
	if (promotion_works() && test_cma_works())
		return true;
	user_close(user);
	return false;
}

static void wish(const struct user *user, enum wish wish, uint32_t n)
{
	struct order order = { wish, n };

	CHECK_EQ(write(user->socket, &order, sizeof(order)), sizeof(order));
}

static uint64_t ask(const struct user *user, enum wish about, uint32_t n)
{
	uint64_t answer;

	wish(user, about, n);
	CHECK_EQ(read(user->socket, &answer, sizeof(answer)), sizeof(answer));
	return answer;
}

static void get(struct user *user, enum wish kind, uint32_t n, uint32_t regions)
{
	wish(user, kind, n);
	while (regions--) {
		CHECK(user->n < REGIONS);
		CHECK_EQ(read(user->socket, &user->found[user->n++], sizeof(struct found)),
			 sizeof(struct found));
	}
}

/* This value to the first word of a region. */
static void write_word(const struct user *user, uint32_t i, uint64_t value)
{
	struct request request = request_of(user->end, IBV_WR_RDMA_WRITE, i, 0, sizeof(value));

	memcpy(user->end->memory, &value, sizeof(value));
	request.wr.wr.rdma.remote_addr = user->found[i].va;
	request.wr.wr.rdma.rkey = user->found[i].rkey;
	end_post(user->end, &request);
	cq_expect(user->end->send_cq, i, IBV_WC_SUCCESS);
}

/* The channel to the owner, the only one: under the lock. */
static struct nupa_channel *channel_of(const struct nupa_engine *engine)
{
	for (uint32_t peer = 0; peer < NUPA_SLOTS_MAX; peer++)
		if (engine->channels[peer])
			return engine->channels[peer];
	return NULL;
}

/* How many regions have a window by which they are plain memory here. */
static uint32_t count_open(const struct user *user)
{
	struct nupa_engine *engine = nupa_engine_of(user->end->context);
	uint32_t n = 0;

	nupa_engine_lock(engine);
	for (uint32_t i = 0; i < user->n; i++) {
		const struct nupa_window *window =
		    nupa_window_find(channel_of(engine), user->found[i].rkey);

		n += window && window->base;
	}
	nupa_engine_unlock(engine);
	return n;
}

static uint32_t room_for_windows(const struct user *user)
{
	struct nupa_engine *engine = nupa_engine_of(user->end->context);
	uint32_t n;

	nupa_engine_lock(engine);
	n = channel_of(engine)->n_windows;
	nupa_engine_unlock(engine);
	return n;
}

/* Mappings of memfds with promoted pages. */
static uint32_t count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uint32_t n = 0;
	char line[512];

	CHECK(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "/memfd:nupa-promoted") != NULL;
	fclose(maps);
	return n;
}

/* Our own region is one, too. */
#define OWN 1u

TEST(windows_on_a_thousand_regions_stay_open_and_share_their_mappings)
{
	struct user user;

	if (!user_open(&user))
		return;
	get(&user, PIECES_OF_ONE, REGIONS, REGIONS);
	for (uint32_t i = 0; i < user.n; i++)
		write_word(&user, i, i);
	CHECK_EQ(count_open(&user), REGIONS);
	CHECK(count_mappings() <= OWN + 3);
	for (uint32_t i = 0; i < user.n; i += 99)
		CHECK_EQ(ask(&user, WORD, i), i);
	user_close(&user);
}

TEST(mappings_end_with_their_regions)
{
	struct user user;
	if (!user_open(&user))
		return;
	for (uint32_t i = 0; i < 1000; i++) {
		get(&user, SEPARATE, 1, 1);
		write_word(&user, 0, i);
		CHECK_EQ(ask(&user, WORD, 0), i);
		ask(&user, END_LAST, 0);
		user.n = 0;
	}
	/* As many as the sweep needs for a round, at most. */
	CHECK(count_mappings() <= OWN + room_for_windows(&user) / 8);
	user_close(&user);
}

TEST(regions_beyond_the_limit_of_mappings_are_reached_without)
{
	struct user user;

	nupa_mappings_max = 2;
	if (!user_open(&user))
		return;
	get(&user, SEPARATE, 5, 5);
	for (uint32_t i = 0; i < user.n; i++)
		write_word(&user, i, 100 + i);
	for (uint32_t i = 0; i < user.n; i++)
		CHECK_EQ(ask(&user, WORD, i), 100 + i);
	CHECK_EQ(count_open(&user), 2);
	CHECK_EQ(count_mappings(), OWN + 2);
	user_close(&user);
}

TEST(a_write_makes_no_page_present_but_its_own)
{
	const uint32_t bytes = 16u << 20;
	uint64_t before;
	struct user user;

	if (!user_open(&user))
		return;
	get(&user, UNTOUCHED, bytes, 1);
	before = ask(&user, MEMFD_BYTES, 0);
	user.found[0].va += bytes / 2;
	write_word(&user, 0, 1);
	CHECK_EQ(ask(&user, MEMFD_BYTES, 0), before + page());
	user_close(&user);
}

/* Looks at the file anew. */
static bool finds(struct nupa_channel *channel, uint32_t number)
{
	channel->shared_fd_seen = number + 1;
	nupa_store_release(&channel->peer_slot->shared_fd, number);
	return nupa_mapping_find(channel);
}

/* By the peer's pidfd, and by its path. */
TEST(only_a_sealed_memfd_of_a_living_peer_is_mapped)
{
	uint32_t own, socket, unsealed, life;
	struct nupa_engine *engine;
	struct nupa_channel *channel;
	struct nupa_slot *slot;
	struct user user;
	int pidfd;

	if (!user_open(&user))
		return;
	get(&user, SEPARATE, 1, 1);
	write_word(&user, 0, 1);
	socket = (uint32_t)ask(&user, DESCRIPTOR, 0);
	unsealed = (uint32_t)ask(&user, DESCRIPTOR, 1);
	engine = nupa_engine_of(user.end->context);
	nupa_engine_lock(engine);
	channel = channel_of(engine);
	slot = channel->peer_slot;
	own = nupa_load_relaxed(&slot->shared_fd);
	pidfd = channel->pidfd;
	for (uint32_t way = 0; way < 2; way++) {
		CHECK(!finds(channel, socket + 1) && !finds(channel, unsealed + 1));
		CHECK(!finds(channel, 1u << 20) && !finds(channel, 0));
		CHECK(finds(channel, own));
		channel->pidfd = -1;
	}
	channel->pidfd = pidfd;
	life = nupa_exchange_seq(&slot->life, 0);
	CHECK(finds(channel, own)); /* by /proc */
	nupa_store_release(&slot->life, life | FUTEX_OWNER_DIED);
	CHECK(!finds(channel, own));
	nupa_store_release(&slot->life, life);
	CHECK(finds(channel, own));
	nupa_engine_unlock(engine);
	write_word(&user, 0, 2);
	CHECK_EQ(ask(&user, WORD, 0), 2);
	user_close(&user);
}
