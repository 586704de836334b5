/* SPDX-License-Identifier: BSD-3-Clause
 * The segment: made, opened, refused when it is not what it claims, reaped, and its pool. */
#include "base/atomics.h"
#include "engine/segment/segment.h"
#include "region/pool.h"
#include "region/region.h"
#include "region/slot_life.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s: false: %s\n", __FILE__, __LINE__, __func__,    \
				#condition);                                                       \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

#define N_HOSTS 2u
#define N_PORTS 4u
#define EXTENT UINT64_C(4096)

static char folder[] = "/dev/shm/nupa-test-segment-XXXXXX";
static char path[64], other_path[64];
static char why[512];

/* host0/1 - switch0/1, switch0/2 - host1/1 */
static struct nupa_host hosts[N_HOSTS] = {
	{ .name = "host0", .port = 0, .link_layer = NUPA_LINK_ETHERNET, .ipv4 = 0x0a000001 },
	{ .name = "host1", .port = 3, .link_layer = NUPA_LINK_ETHERNET, .ipv4 = 0x0a000002 },
};

#define LINK .width_lanes = 4, .speed_mtps = 32000, .state = NUPA_PORT_ACTIVE
static struct nupa_port ports[N_PORTS] = {
	{ .name = "host0/1", .peer = 1, .node = 0, .number = 1, LINK },
	{ .name = "switch0/1", .peer = 0, .is_switch = 1, .node = 0, .number = 1, LINK },
	{ .name = "switch0/2", .peer = 3, .is_switch = 1, .node = 0, .number = 2, LINK },
	{ .name = "host1/1", .peer = 2, .node = 1, .number = 1, LINK },
};

static struct nupa_route routes[N_HOSTS * N_HOSTS] = {
	{ .hops = 0 },
	{ .hops = 4, .port = { 0, 1, 2, 3 } },
	{ .hops = 4, .port = { 3, 2, 1, 0 } },
	{ .hops = 0 },
};

/* Small, so that whole files can be rewritten. */
static const struct nupa_config small = {
	.slots = 5,
	.ring_lines = 16,
	.dma_bytes = 4096,
	.qp_entries = 600,
	.mr_entries = 600,
	.extent_bytes = 4096,
	.pool_bytes = 8 * EXTENT,
};

static int try_create(const char *at, const struct nupa_config *config, struct nupa_fabric **out)
{
	why[0] = 0;
	return nupa_fabric_create(at, "test", config, hosts, N_HOSTS, ports, N_PORTS, routes, out,
				  why, sizeof(why));
}

static struct nupa_fabric *create(const char *at, const struct nupa_config *config)
{
	struct nupa_fabric *fabric = NULL;

	if (try_create(at, config, &fabric)) {
		fprintf(stderr, "%s\n", why);
		abort();
	}
	return fabric;
}

static int try_open(const char *at)
{
	struct nupa_fabric *fabric = NULL;
	int rc;

	why[0] = 0;
	rc = nupa_fabric_open(at, &fabric, why, sizeof(why));
	CHECK((rc == 0) == (fabric != NULL));
	CHECK((rc == 0) == (why[0] == 0));
	if (fabric)
		nupa_fabric_put(fabric);
	return rc;
}

/* Refused with *error*, and *why* holds *text*. */
static void refused(const char *at, int error, const char *text)
{
	int rc = try_open(at);

	if (rc != -error || !strstr(why, text)) {
		fprintf(stderr, "got %d (%s) instead of %d (%s)\n", rc, why, -error, text);
		abort();
	}
}

static void write_at(const char *at, uint64_t offset, const void *data, size_t bytes)
{
	int fd = open(at, O_WRONLY | O_CLOEXEC);

	CHECK(fd >= 0);
	CHECK(pwrite(fd, data, bytes, (off_t)offset) == (ssize_t)bytes);
	close(fd);
}

/* A copy of the control part in a file of the same length. */
static void copy_segment(const struct nupa_fabric *fabric)
{
	int fd = open(other_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	CHECK(ftruncate(fd, (off_t)fabric->sb->segment_bytes) == 0);
	CHECK(pwrite(fd, fabric->sb, fabric->sb->arenas_off, 0) == (ssize_t)fabric->sb->arenas_off);
	close(fd);
}

static void test_defaults_are_sparse(void)
{
	struct nupa_fabric *fabric = create(path, NULL);
	struct stat st;

	CHECK(fstat(fabric->fd, &st) == 0);
	CHECK((st.st_mode & 07777) == 0600);
	CHECK(st.st_size > (off_t)64 << 30);
	CHECK(st.st_blocks * 512 < 1 << 20);
	CHECK(nupa_fabric_n_slots(fabric) == 256);
	CHECK(fabric->sb->ring_lines == 1024 && fabric->sb->dma_bytes == 1u << 20);
	CHECK(fabric->sb->qp_entries == NUPA_QP_MAX && fabric->sb->mr_entries == NUPA_MR_MAX);
	CHECK(fabric->sb->extent_bytes == 65536 && fabric->sb->pool_bytes == UINT64_C(5) << 29);
	CHECK(nupa_fabric_arena(fabric, 255) != NULL);
	CHECK(nupa_fabric_arena(fabric, 256) == NULL && errno == EINVAL);
	CHECK(nupa_fabric_arena(fabric, 0) == NULL && errno == EINVAL);
	CHECK(try_create(path, NULL, &fabric) == -EEXIST);
	nupa_fabric_put(fabric);
	unlink(path);
}

static void test_opened_again_says_the_same(void)
{
	struct nupa_config config = small;
	struct nupa_fabric *made, *opened = NULL;

	config.flags = NUPA_SEGMENT_AUTO;
	made = create(path, &config);
	CHECK(nupa_fabric_open(path, &opened, why, sizeof(why)) == 0);
	CHECK(nupa_fabric_n_hosts(opened) == N_HOSTS && nupa_fabric_n_ports(opened) == N_PORTS);
	CHECK(nupa_fabric_flags(opened) == NUPA_SEGMENT_AUTO);
	CHECK(nupa_fabric_generation(opened) == nupa_fabric_generation(made));
	CHECK(nupa_fabric_created_ns(opened) == nupa_fabric_created_ns(made));
	CHECK(strcmp(nupa_fabric_name(opened), "test") == 0);
	CHECK(strcmp(nupa_fabric_host(opened, 1)->name, "host1") == 0);
	CHECK(strcmp(nupa_fabric_port(opened, 3)->name, "host1/1") == 0);
	CHECK(nupa_fabric_route(opened, 0, 1)->hops == 4);
	CHECK(!nupa_fabric_host(opened, 2) && !nupa_fabric_port(opened, 4) &&
	      !nupa_fabric_route(opened, 0, 2));
	CHECK(nupa_fabric_fd(opened) >= 0);
	CHECK(nupa_fabric_get(opened) == opened);
	nupa_fabric_put(opened);
	nupa_fabric_put(opened);
	nupa_fabric_put(made);
	unlink(path);
}

static void test_one_past_each_limit_is_refused_and_leaves_no_file(void)
{
	const struct nupa_config bad[] = {
		{ .slots = NUPA_SLOTS_MAX + 1 },
		{ .slots = NUPA_SLOTS_MIN - 1 },
		{ .ring_lines = NUPA_RING_LINES_MAX * 2 },
		{ .ring_lines = NUPA_RING_LINES_MIN / 2 },
		{ .ring_lines = NUPA_RING_LINES_MIN + 1 },
		{ .dma_bytes = NUPA_DMA_BYTES_MAX * 2 },
		{ .dma_bytes = NUPA_DMA_BYTES_MIN / 2 },
		{ .dma_bytes = NUPA_DMA_BYTES_MIN + 1 },
		{ .qp_entries = NUPA_QP_MAX + 1 },
		{ .mr_entries = NUPA_MR_MAX + 1 },
		{ .extent_bytes = NUPA_EXTENT_BYTES_MAX * 2 },
		{ .extent_bytes = NUPA_EXTENT_BYTES_MIN / 2 },
		{ .extent_bytes = NUPA_EXTENT_BYTES_MIN * 3 },
		{ .extent_bytes = NUPA_EXTENT_BYTES_MAX,
		  .pool_bytes = NUPA_POOL_BYTES_MAX + NUPA_EXTENT_BYTES_MAX },
		{ .extent_bytes = 4096, .pool_bytes = 4096 * (NUPA_EXTENTS_MAX + UINT64_C(1)) },
		{ .extent_bytes = 4096, .pool_bytes = 4097 },
		{ .flags = 2 },
	};
	struct nupa_fabric *fabric = NULL;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK(try_create(path, &bad[i], &fabric) == -EINVAL);
		CHECK(why[0] && !fabric && access(path, F_OK) < 0);
	}
}

static void test_the_largest_limits_are_accepted(void)
{
	const struct nupa_config largest = {
		.slots = NUPA_SLOTS_MAX,
		.ring_lines = NUPA_RING_LINES_MAX,
		.dma_bytes = NUPA_DMA_BYTES_MAX,
		.qp_entries = NUPA_QP_MAX,
		.mr_entries = NUPA_MR_MAX,
		.extent_bytes = 1u << 20,
		.pool_bytes = NUPA_POOL_BYTES_MAX,
	};
	struct nupa_fabric *fabric = create(path, &largest);

	CHECK(fabric->sb->n_extents == NUPA_EXTENTS_MAX);
	nupa_fabric_put(fabric);
	CHECK(try_open(path) == 0);
	unlink(path);
}

static int create_tables(const char *name, const struct nupa_host *h, uint32_t n_hosts,
			 const struct nupa_port *p, uint32_t n_ports, const struct nupa_route *r)
{
	struct nupa_fabric *fabric = NULL;
	int rc = nupa_fabric_create(NULL, name, &small, h, n_hosts, p, n_ports, r, &fabric, why,
				    sizeof(why));

	if (fabric)
		nupa_fabric_put(fabric);
	return rc;
}

static void test_tables_that_contradict_themselves_are_refused(void)
{
	struct nupa_host h[N_HOSTS];
	struct nupa_port p[N_PORTS];
	struct nupa_route r[N_HOSTS * N_HOSTS];
	char long_name[65];

#define REFUSED_WITH(statement)                                                                    \
	do {                                                                                       \
		memcpy(h, hosts, sizeof(h));                                                       \
		memcpy(p, ports, sizeof(p));                                                       \
		memcpy(r, routes, sizeof(r));                                                      \
		statement;                                                                         \
		CHECK(create_tables("test", h, N_HOSTS, p, N_PORTS, r) == -EINVAL);                \
	} while (0)
	REFUSED_WITH(memset(h[1].name, 'x', sizeof(h[1].name)));
	REFUSED_WITH(h[1].name[0] = 0);
	REFUSED_WITH(h[1].port = N_PORTS);
	REFUSED_WITH(h[1].port = 1);
	REFUSED_WITH(h[1].link_layer = 3);
	REFUSED_WITH(memset(p[2].name, 'x', sizeof(p[2].name)));
	REFUSED_WITH(p[2].peer = N_PORTS);
	REFUSED_WITH(p[2].peer = 2);
	REFUSED_WITH(p[2].peer = 0);
	REFUSED_WITH(p[0].node = N_HOSTS);
	REFUSED_WITH(p[2].width_lanes = 0);
	REFUSED_WITH(r[1].hops = NUPA_HOPS_MAX + 1);
	REFUSED_WITH(r[1].hops = 0);
	REFUSED_WITH(r[1].port[2] = N_PORTS);
	REFUSED_WITH(r[1].port[0] = 1);
#undef REFUSED_WITH
	CHECK(create_tables("test", hosts, NUPA_HOSTS_MAX + 1, ports, N_PORTS, routes) == -EINVAL);
	CHECK(create_tables("test", hosts, 0, ports, N_PORTS, routes) == -EINVAL);
	CHECK(create_tables("test", hosts, N_HOSTS, ports, NUPA_PORTS_MAX + 1, routes) == -EINVAL);
	memset(long_name, 'n', sizeof(long_name));
	long_name[64] = 0;
	CHECK(create_tables(long_name, hosts, N_HOSTS, ports, N_PORTS, routes) == -EINVAL);
	CHECK(create_tables("", hosts, N_HOSTS, ports, N_PORTS, routes) == -EINVAL);
	long_name[63] = 0;
	CHECK(create_tables(long_name, hosts, N_HOSTS, ports, N_PORTS, routes) == 0);
}

static void test_what_is_no_fabric_is_refused_and_named(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char long_path[300];
	int fd;

	refused("/dev/shm/nupa-no-such-fabric", ENOENT, "nupa up");
	refused("/dev/shm", EINVAL, "not a regular file");
	refused("/dev/null", EINVAL, "not a regular file");
	CHECK(mkfifo(other_path, 0600) == 0);
	refused(other_path, EINVAL, "not a regular file");
	unlink(other_path);
	memcpy(address.sun_path, other_path, sizeof(other_path));
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(fd >= 0);
	CHECK(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	refused(other_path, EINVAL, "not a regular file");
	close(fd);
	unlink(other_path);
	memset(long_path, 'p', sizeof(long_path));
	long_path[299] = 0;
	refused(long_path, ENAMETOOLONG, "299");
}

/* A xorshift64* generator: *bytes* is many megabytes, and a multiple of 8. */
static void fill_with_noise(uint8_t *noise, uint64_t bytes, uint64_t *state)
{
	for (uint64_t i = 0; i < bytes; i += sizeof(*state)) {
		uint64_t word;

		*state ^= *state >> 12;
		*state ^= *state << 25;
		*state ^= *state >> 27;
		word = *state * UINT64_C(2685821657736338717);
		memcpy(noise + i, &word, sizeof(word));
	}
}

static void test_damaged_segments_are_refused_and_named(void)
{
	struct nupa_fabric *fabric = create(path, &small);
	const uint64_t bytes = fabric->sb->segment_bytes;
	uint8_t *noise = malloc(bytes);
	uint64_t word = 0, random_state = 7;
	uint32_t version = NUPA_LAYOUT_VERSION + 1;
	char text[64];
	int rc;

	CHECK(noise);
	copy_segment(fabric);
	CHECK(try_open(other_path) == 0);
	write_at(other_path, offsetof(struct nupa_superblock, layout_version), &version, 4);
	snprintf(text, sizeof(text), "version %u, this program speaks version %u", version,
		 NUPA_LAYOUT_VERSION);
	refused(other_path, EPROTONOSUPPORT, text);

	copy_segment(fabric);
	write_at(other_path, 0, &word, 8);
	refused(other_path, ENODATA, "never finished");
	copy_segment(fabric);
	CHECK(truncate(other_path, (off_t)bytes - 1) == 0);
	refused(other_path, EMSGSIZE, "truncated");
	CHECK(truncate(other_path, 319) == 0);
	refused(other_path, EMSGSIZE, "319 bytes");
	CHECK(truncate(other_path, 0) == 0);
	refused(other_path, EMSGSIZE, "truncated");
	CHECK(truncate(other_path, (off_t)bytes) == 0);
	refused(other_path, ENODATA, "zeroed");

	for (int round = 0; round < 20; round++) {
		fill_with_noise(noise, bytes, &random_state);
		write_at(other_path, 0, noise, bytes);
		refused(other_path, EILSEQ, "no fabric");
		word = NUPA_MAGIC;
		version = NUPA_LAYOUT_VERSION;
		write_at(other_path, 0, &word, 8);
		write_at(other_path, 8, &version, 4);
		refused(other_path, EUCLEAN, "corrupt");
	}
	/* Each byte of the immutable part, one bit changed: none may pass. */
	copy_segment(fabric);
	for (uint64_t at = 0; at < fabric->sb->routes_off + sizeof(routes); at++) {
		uint8_t byte = ((uint8_t *)fabric->sb)[at];
		uint64_t in_port = (at - fabric->sb->ports_off) % sizeof(struct nupa_port);
		bool mutable = (at >= offsetof(struct nupa_superblock, checksum) + 4 &&
				at < sizeof(struct nupa_superblock)) ||
			       (at >= fabric->sb->ports_off && at < fabric->sb->routes_off &&
				in_port >= offsetof(struct nupa_port, state));

		byte ^= (uint8_t)(1u << at % 8);
		write_at(other_path, at, &byte, 1);
		rc = try_open(other_path);
		CHECK((rc == 0) == mutable);
		byte ^= (uint8_t)(1u << at % 8);
		write_at(other_path, at, &byte, 1);
	}
	/* Noise in all that others may write: opens, and every question has a safe answer. */
	copy_segment(fabric);
	write_at(other_path, fabric->sb->slots_off, noise, bytes - fabric->sb->slots_off);
	nupa_fabric_put(fabric);
	CHECK(nupa_fabric_open(other_path, &fabric, why, sizeof(why)) == 0);
	for (uint32_t from = 0; from < 300; from++) {
		struct nupa_slot_info info;
		struct nupa_flow_info flow;

		rc = nupa_fabric_slot(fabric, from, &info);
		CHECK(rc <= 0);
		CHECK(rc || (info.host < N_HOSTS && info.qps <= 600 && info.mrs <= 600));
		CHECK(rc || memchr(info.comm, 0, sizeof(info.comm)));
		CHECK(nupa_fabric_flow(fabric, from, from % 3, &flow) <= 0);
		for (uint32_t to = 0; to < 300; to++)
			CHECK(nupa_fabric_mover(fabric, from, to) <= 4);
	}
	CHECK(nupa_fabric_reap(fabric) >= 0);
	nupa_fabric_put(fabric);
	free(noise);
	unlink(path);
	unlink(other_path);
}

static void test_another_user_has_no_permission(void)
{
	struct nupa_fabric *fabric = create(path, &small);
	int status;
	pid_t child;

	if (geteuid() == 0) {
		CHECK(chmod(folder, 0755) == 0);
		child = fork();
		if (child == 0) {
			if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
				_exit(2);
			_exit(try_open(path) == -EACCES && strstr(why, "permission") ? 0 : 1);
		}
	} else {
		CHECK(chmod(path, 0) == 0);
		child = fork();
		if (child == 0)
			_exit(try_open(path) == -EACCES && strstr(why, "permission") ? 0 : 1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	nupa_fabric_put(fabric);
	unlink(path);
}

static void test_a_file_size_limit_is_an_error_and_no_signal(void)
{
	struct nupa_fabric *fabric = NULL;
	struct rlimit limit, old;

	CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
	limit = old;
	limit.rlim_cur = 1 << 20;
	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	CHECK(try_create(path, NULL, &fabric) == -EFBIG && strstr(why, "ulimit -f"));
	CHECK(access(path, F_OK) < 0);
	CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
}

/* Claims a slot as the engine does. */
static void claim(struct nupa_fabric *fabric, uint32_t slot, pid_t pid, uint32_t state,
		  uint64_t start_time)
{
	struct nupa_slot *entry = &fabric->slots[slot];
	uint32_t epoch = NUPA_CLAIM_EPOCH(entry->claim) + 1;

	entry->host = slot % N_HOSTS;
	entry->start_time = start_time;
	memcpy(entry->comm, "tester", 7);
	nupa_store_release(&entry->claim, NUPA_CLAIM(pid, epoch, state));
}

static uint64_t arena_at(const struct nupa_fabric *fabric, uint32_t slot)
{
	return fabric->sb->arenas_off + (slot - 1) * fabric->sb->arena_bytes;
}

static uint64_t backed_bytes(const struct nupa_fabric *fabric)
{
	struct stat st;

	CHECK(fstat(fabric->fd, &st) == 0);
	return (uint64_t)st.st_blocks * 512;
}

static void test_questions_about_unused_slots_back_no_memory(void)
{
	struct nupa_fabric *fabric = create(NULL, &small);
	uint64_t before = backed_bytes(fabric);
	struct nupa_slot_info info;
	struct nupa_flow_info flow = { .xmit_bytes = 7 };

	claim(fabric, 2, getpid(), NUPA_SLOT_LIVE, nupa_process_start_time((uint32_t)getpid()));
	claim(fabric, 3, getpid(), NUPA_SLOT_LIVE, nupa_process_start_time((uint32_t)getpid()));
	fabric->slots[2].qp_limit = UINT32_MAX;
	fabric->slots[2].mr_limit = UINT32_MAX;
	CHECK(nupa_fabric_slot(fabric, 1, &info) == -ENOENT);
	CHECK(nupa_fabric_slot(fabric, 0, &info) == -EINVAL);
	CHECK(nupa_fabric_slot(fabric, 5, &info) == -EINVAL);
	CHECK(nupa_fabric_slot(fabric, 2, &info) == 0 && info.qps == 0 && info.mrs == 0);
	CHECK(info.pid == (uint32_t)getpid() && info.alive && info.host == 0 && info.epoch == 1);
	CHECK(strcmp(info.comm, "tester") == 0);
	CHECK(nupa_fabric_flow(fabric, 1, 1, &flow) == 0 && flow.xmit_bytes == 0);
	CHECK(nupa_fabric_flow(fabric, 1, 2, &flow) == -EINVAL);
	CHECK(nupa_fabric_mover(fabric, 2, 3) == -ENOENT);
	CHECK(nupa_fabric_mover(fabric, 1, 3) == -ENOENT);
	CHECK(backed_bytes(fabric) == before);
	nupa_fabric_put(fabric);
}

static void test_tables_flows_and_movers_are_read(void)
{
	struct nupa_fabric *fabric = create(NULL, &small);
	struct nupa_arena_map map = nupa_arena_map(fabric->sb);
	uint8_t *arena = nupa_fabric_arena(fabric, 2);
	struct nupa_ring_header *ring;
	struct nupa_slot_info info;
	struct nupa_flow_info flow;

	CHECK(nupa_fabric_back(fabric, arena_at(fabric, 2), fabric->sb->arena_bytes) == 0);
	CHECK(nupa_fabric_back(fabric, fabric->sb->segment_bytes, 1) == -EINVAL);
	CHECK(nupa_fabric_back(fabric, UINT64_MAX, 2) == -EINVAL);
	CHECK(nupa_fabric_back(fabric, 0, 0) == -EINVAL);
	claim(fabric, 2, getpid(), NUPA_SLOT_LIVE, 0);
	claim(fabric, 3, getpid(), NUPA_SLOT_LIVE, 0);
	fabric->slots[2].qp_limit = 500;
	fabric->slots[2].mr_limit = 300;
	for (uint32_t i = 0; i < 600; i += 100) {
		((struct nupa_qp_entry *)(arena + map.qps_off))[i].qpn = 2u << 16 | i;
		((struct nupa_mr_entry *)(arena + map.mrs_off))[i].key = i << 12 | 1;
	}
	((struct nupa_flow *)(arena + map.flows_off))[1].xmit_bytes = 12345;
	ring = (struct nupa_ring_header *)(arena + map.rings_off + 3 * map.ring_stride);
	ring->pair = UINT64_C(1) << 32 | 1;
	ring->mover = 3;
	CHECK(nupa_fabric_slot(fabric, 2, &info) == 0);
	CHECK(info.mrs == 3);
	CHECK(info.qps == 5);
	CHECK(nupa_fabric_flow(fabric, 2, 1, &flow) == 0 && flow.xmit_bytes == 12345);
	CHECK(nupa_fabric_mover(fabric, 2, 3) == 3);
	CHECK(nupa_fabric_mover(fabric, 3, 2) == -ENOENT);
	ring->mover = 6;
	CHECK(nupa_fabric_mover(fabric, 2, 3) == -ENOENT);
	ring->mover = 3;
	ring->pair++;
	CHECK(nupa_fabric_mover(fabric, 2, 3) == -ENOENT);
	nupa_fabric_put(fabric);
}

/* A child that has ended; zombie: not yet waited for. */
static pid_t dead_child(bool zombie)
{
	siginfo_t info;
	pid_t child = fork();

	if (child == 0)
		_exit(0);
	CHECK(waitid(P_PID, (id_t)child, &info, WEXITED | (zombie ? WNOWAIT : 0)) == 0);
	return child;
}

static void test_liveness_needs_pid_and_start_time(void)
{
	uint64_t mine = nupa_process_start_time((uint32_t)getpid());
	pid_t zombie = dead_child(true);
	pid_t gone = dead_child(false);

	CHECK(mine != 0);
	CHECK(nupa_process_alive((uint32_t)getpid(), mine));
	CHECK(nupa_process_alive((uint32_t)getpid(), 0));
	CHECK(!nupa_process_alive((uint32_t)getpid(), mine + 1));
	CHECK(!nupa_process_alive((uint32_t)zombie, 0));
	CHECK(!nupa_process_alive((uint32_t)gone, 0));
	CHECK(nupa_process_start_time((uint32_t)gone) == 0);
	CHECK(!nupa_process_alive(0, 0));
	CHECK(!nupa_process_alive(UINT32_MAX, 0));
	CHECK(nupa_process_alive(1, 0));
	waitpid(zombie, NULL, 0);
}

static void test_reaping_frees_the_dead_and_spares_the_living(void)
{
	struct nupa_fabric *fabric = create(NULL, &small);
	pid_t gone = dead_child(false);
	uint64_t mine = nupa_process_start_time((uint32_t)getpid());
	uint64_t before;
	uint8_t *arena = nupa_fabric_arena(fabric, 1);

	before = backed_bytes(fabric);
	CHECK(nupa_fabric_back(fabric, arena_at(fabric, 1), fabric->sb->arena_bytes) == 0);
	memset(arena, 0x5a, fabric->sb->arena_bytes);
	claim(fabric, 1, gone, NUPA_SLOT_LIVE, 1);
	claim(fabric, 2, gone, NUPA_SLOT_ATTACHING, 0);
	claim(fabric, 3, gone, NUPA_SLOT_REAPING, mine);
	claim(fabric, 4, getpid(), NUPA_SLOT_LIVE, mine);
	fabric->slots[1].qp_limit = 5;
	fabric->slots[1].hazard = 9;
	fabric->slots[1].next_qp_index = 77;
	fabric->extents[3] = 1u << 24 | 1;
	fabric->extents[4] = 4u << 24 | 1;
	fabric->extents[5] = (uint32_t)gone;
	fabric->extents[6] = (uint32_t)getpid();
	CHECK(nupa_fabric_reap(fabric) == 3);
	for (uint32_t slot = 1; slot <= 3; slot++)
		CHECK(fabric->slots[slot].claim == NUPA_CLAIM(0, 1, NUPA_SLOT_FREE));
	CHECK(NUPA_CLAIM_STATE(fabric->slots[4].claim) == NUPA_SLOT_LIVE);
	CHECK(fabric->slots[4].contact_epoch == 1);
	CHECK(fabric->slots[1].qp_limit == 0 && fabric->slots[1].hazard == 0);
	CHECK(fabric->slots[1].next_qp_index == 77);
	CHECK(fabric->extents[3] == 0 && fabric->extents[4] != 0);
	CHECK(fabric->extents[5] == 0 && fabric->extents[6] != 0);
	CHECK(backed_bytes(fabric) == before);
	CHECK(arena[0] == 0 && arena[fabric->sb->arena_bytes - 1] == 0);
	CHECK(nupa_fabric_reap(fabric) == 0);
	/* A pid that was given out again is not the owner. */
	fabric->slots[4].start_time++;
	CHECK(nupa_fabric_reap(fabric) == 1);
	nupa_fabric_put(fabric);
}

static void test_traffic_outlives_its_attachment_and_keeps_its_host(void)
{
	struct nupa_fabric *fabric = create(NULL, &small);
	struct nupa_flow_info flow;

	for (uint32_t round = 1; round <= 3; round++) {
		struct nupa_flow *flows = (struct nupa_flow *)nupa_fabric_arena(fabric, 1);

		claim(fabric, 1, getpid(), NUPA_SLOT_LIVE, 0);
		fabric->slots[1].host = round % 2;
		CHECK(nupa_fabric_back(fabric, arena_at(fabric, 1), 4096) == 0);
		CHECK(flows[0].xmit_bytes == 0);
		flows[0] = (struct nupa_flow){ 1000, 10, 2000, 20, 3, 4, 0, 0 };
		CHECK(nupa_fabric_flow(fabric, 1, 0, &flow) == 0 && flow.xmit_bytes == 1000);
		CHECK(nupa_fabric_free_slot(fabric, 1) == 0);
		CHECK(nupa_fabric_flow(fabric, 1, 0, &flow) == 0 && flow.xmit_bytes == 0);
	}
	CHECK(nupa_fabric_past_flow(fabric, 1, 0, &flow) == 0);
	CHECK(flow.xmit_bytes == 2000 && flow.xmit_packets == 20 && flow.rcv_bytes == 4000);
	CHECK(flow.rcv_packets == 40 && flow.xmit_wait == 6 && flow.xmit_discards == 8);
	CHECK(nupa_fabric_past_flow(fabric, 0, 0, &flow) == 0 && flow.xmit_bytes == 1000);
	CHECK(nupa_fabric_past_flow(fabric, 0, 1, &flow) == 0 && flow.xmit_bytes == 0);
	CHECK(nupa_fabric_past_flow(fabric, 2, 0, &flow) == -EINVAL);
	CHECK(nupa_fabric_past_flow(fabric, 0, 2, &flow) == -EINVAL);
	nupa_fabric_put(fabric);
}

static void test_slots_are_claimed_until_none_is_free(void)
{
	struct nupa_fabric *fabric = create(NULL, &small);
	struct nupa_slot_info info;
	char comm[16] = "";
	uint32_t slot = 0;

	CHECK(nupa_fabric_claim_slot(fabric, N_HOSTS, &slot) == -EINVAL);
	for (uint32_t expected = 1; expected <= 4; expected++)
		CHECK(nupa_fabric_claim_slot(fabric, 1, &slot) == 0 && slot == expected);
	CHECK(nupa_fabric_claim_slot(fabric, 1, &slot) == -EBUSY);
	CHECK(nupa_fabric_slot(fabric, 2, &info) == 0 && info.state == NUPA_SLOT_ATTACHING);
	CHECK(info.host == 1 && info.alive && info.epoch == 1 && info.uid == geteuid());
	CHECK(prctl(PR_GET_NAME, comm) == 0); /* an emulator's, under one */
	CHECK(strcmp(info.comm, comm) == 0);
	CHECK(fabric->slots[2].start_time == nupa_process_start_time((uint32_t)getpid()));

	CHECK(nupa_fabric_free_slot(fabric, 2) == 0);
	CHECK(nupa_fabric_claim_slot(fabric, 0, &slot) == 0 && slot == 2);
	CHECK(NUPA_CLAIM_EPOCH(fabric->slots[2].claim) == 2);
	fabric->slots[3].claim = NUPA_CLAIM(0, 0xffffff, NUPA_SLOT_FREE);
	CHECK(nupa_fabric_claim_slot(fabric, 1, &slot) == 0 && slot == 3);
	CHECK(NUPA_CLAIM_EPOCH(fabric->slots[3].claim) == 1);
	nupa_fabric_put(fabric);
}

static void test_an_owner_frees_its_slot_and_nobody_else_does(void)
{
	struct nupa_fabric *fabric = create(NULL, &small);

	claim(fabric, 1, getpid(), NUPA_SLOT_ATTACHING, 0);
	claim(fabric, 2, 1, NUPA_SLOT_LIVE, 0);
	CHECK(nupa_fabric_free_slot(fabric, 1) == 0);
	CHECK(fabric->slots[1].claim == NUPA_CLAIM(0, 1, NUPA_SLOT_FREE));
	CHECK(nupa_fabric_free_slot(fabric, 1) == -EPERM);
	CHECK(nupa_fabric_free_slot(fabric, 2) == -EPERM);
	CHECK(nupa_fabric_free_slot(fabric, 0) == -EINVAL);
	CHECK(nupa_fabric_free_slot(fabric, 5) == -EINVAL);
	CHECK(fabric->slots[2].contact_epoch == 1);
	nupa_fabric_put(fabric);
}

static void *sleep_on_doorbell(void *argument)
{
	struct nupa_slot *slot = argument;

	while (nupa_load_seq(&slot->sleeping))
		syscall(SYS_futex, &slot->sleeping, FUTEX_WAIT, 1, NULL, NULL, 0);
	return NULL;
}

static void test_a_port_that_goes_down_is_counted_and_wakes_sleepers(void)
{
	struct nupa_fabric *fabric = create(NULL, &small);
	pthread_t sleeper;

	claim(fabric, 1, getpid(), NUPA_SLOT_LIVE, 0);
	fabric->slots[1].sleeping = 1;
	CHECK(pthread_create(&sleeper, NULL, sleep_on_doorbell, &fabric->slots[1]) == 0);
	CHECK(nupa_fabric_set_port(fabric, 0, NUPA_PORT_DOWN) == 0);
	CHECK(pthread_join(sleeper, NULL) == 0);
	CHECK(nupa_fabric_port(fabric, 0)->state == NUPA_PORT_DOWN);
	CHECK(nupa_fabric_port(fabric, 0)->link_downed == 1);
	CHECK(fabric->sb->port_epoch == 1);
	CHECK(nupa_fabric_set_port(fabric, 0, NUPA_PORT_DOWN) == 0);
	CHECK(fabric->sb->port_epoch == 1);
	CHECK(nupa_fabric_set_port(fabric, 0, NUPA_PORT_ACTIVE) == 0);
	CHECK(nupa_fabric_port(fabric, 0)->link_downed == 1 && fabric->sb->port_epoch == 2);
	CHECK(nupa_fabric_set_port(fabric, N_PORTS, NUPA_PORT_DOWN) == -EINVAL);
	CHECK(nupa_fabric_set_port(fabric, 0, 2) == -EINVAL);
	nupa_fabric_put(fabric);
}

static void test_pool_memory_is_claimed_returned_and_bounded(void)
{
	struct nupa_fabric *fabric = create(NULL, &small);
	uint64_t before = backed_bytes(fabric);
	void *first, *second, *none = NULL;

	claim(fabric, 1, getpid(), NUPA_SLOT_LIVE, 0);
	claim(fabric, 2, 1, NUPA_SLOT_LIVE, 0);
	CHECK(nupa_pool_alloc(fabric, 1, 4097, &first) == 0);
	CHECK(nupa_pool_alloc(fabric, 0, 4096, &second) == 0);
	CHECK((uint8_t *)second == (uint8_t *)first + 8192);
	memset(first, 1, 8192);
	CHECK(backed_bytes(fabric) == before + 3 * EXTENT);
	CHECK(fabric->extents[0] == (1u << 24 | 1) && fabric->extents[2] == (uint32_t)getpid());

	CHECK(nupa_pool_alloc(fabric, 1, 6 * EXTENT, &none) == -ENOMEM);
	CHECK(nupa_pool_alloc(fabric, 1, 8 * EXTENT + 1, &none) == -ENOMEM);
	CHECK(nupa_pool_alloc(fabric, 1, UINT64_MAX, &none) == -ENOMEM);
	CHECK(nupa_pool_alloc(fabric, 1, 0, &none) == -EINVAL);
	CHECK(nupa_pool_alloc(fabric, 5, 1, &none) == -EINVAL);
	CHECK(nupa_pool_alloc(fabric, 2, 1, &none) == -EPERM);
	CHECK(nupa_pool_alloc(fabric, 3, 1, &none) == -EPERM);
	CHECK(!none);

	CHECK(nupa_pool_free(fabric, 0, first, 4097) == -EPERM);
	CHECK(nupa_pool_free(fabric, 1, (uint8_t *)first + 1, 4096) == -EINVAL);
	CHECK(nupa_pool_free(fabric, 1, first, 3 * EXTENT) == -EPERM);
	CHECK(nupa_pool_free(fabric, 1, first, 9 * EXTENT) == -EINVAL);
	CHECK(nupa_pool_free(fabric, 1, (void *)&none, 1) == -EINVAL);
	CHECK(nupa_pool_free(fabric, 1, first, 4097) == 0);
	CHECK(nupa_pool_free(fabric, 1, first, 4097) == -EPERM);
	CHECK(nupa_pool_alloc(fabric, 1, 8192, &first) == 0);
	CHECK(*(uint8_t *)first == 0);
	CHECK(nupa_pool_free(fabric, 1, first, 8192) == 0);
	CHECK(nupa_pool_free(fabric, 0, second, 4096) == 0);
	CHECK(backed_bytes(fabric) == before);
	nupa_fabric_put(fabric);
}

static void *allocate_and_check(void *argument)
{
	struct nupa_fabric *fabric = argument;

	for (int round = 0; round < 2000; round++) {
		const uint64_t bytes = (1 + (uint64_t)round % 3) * EXTENT;
		uint64_t *at;
		int rc = nupa_pool_alloc(fabric, 0, bytes, (void **)&at);

		CHECK(rc == 0 || rc == -ENOMEM);
		if (rc)
			continue;
		for (uint64_t i = 0; i < bytes / 8; i += 64) {
			CHECK(at[i] == 0);
			at[i] = (uintptr_t)&bytes;
		}
		for (uint64_t i = 0; i < bytes / 8; i += 64)
			CHECK(at[i] == (uintptr_t)&bytes);
		CHECK(nupa_pool_free(fabric, 0, at, bytes) == 0);
	}
	return NULL;
}

static void test_threads_never_get_the_same_pool_memory(void)
{
	struct nupa_fabric *fabric = create(NULL, &small);
	pthread_t threads[3];

	for (int i = 0; i < 3; i++)
		CHECK(pthread_create(&threads[i], NULL, allocate_and_check, fabric) == 0);
	for (int i = 0; i < 3; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	for (uint32_t i = 0; i < 8; i++)
		CHECK(fabric->extents[i] == 0);
	nupa_fabric_put(fabric);
}

static struct {
	struct nupa_fabric *fabric;
	pthread_barrier_t start;
} first_use;

static void *use_first(void *argument)
{
	void *at;

	(void)argument;
	pthread_barrier_wait(&first_use.start);
	CHECK(nupa_pool_alloc(first_use.fabric, 0, EXTENT, &at) == 0);
	CHECK(nupa_pool_offset(first_use.fabric, at) != UINT64_MAX);
	CHECK(nupa_pool_free(first_use.fabric, 0, at, EXTENT) == 0);
	return NULL;
}

/* A part of the segment is mapped at its first use: TSan judges that threads may do so at once. */
static void test_threads_may_be_the_first_to_use_the_pool_at_once(void)
{
	pthread_t threads[3];

	CHECK(pthread_barrier_init(&first_use.start, NULL, 3) == 0);
	for (int round = 0; round < 200; round++) {
		first_use.fabric = create(NULL, &small);
		for (int i = 0; i < 3; i++)
			CHECK(pthread_create(&threads[i], NULL, use_first, NULL) == 0);
		for (int i = 0; i < 3; i++)
			CHECK(pthread_join(threads[i], NULL) == 0);
		nupa_fabric_put(first_use.fabric);
	}
	pthread_barrier_destroy(&first_use.start);
}

static bool write_text(const char *file, const char *text)
{
	int fd = open(file, O_WRONLY | O_CLOEXEC);
	bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return written;
}

/* A tmpfs of 72 KiB in a mount namespace of our own; false where that is not allowed. */
static bool mount_small_tmpfs(void)
{
	char uid_map[32], gid_map[32];

	snprintf(uid_map, sizeof(uid_map), "0 %u 1", (unsigned int)geteuid());
	snprintf(gid_map, sizeof(gid_map), "0 %u 1", (unsigned int)getegid());
	if (unshare(CLONE_NEWNS) &&
	    (unshare(CLONE_NEWUSER | CLONE_NEWNS) || !write_text("/proc/self/uid_map", uid_map) ||
	     !write_text("/proc/self/setgroups", "deny") ||
	     !write_text("/proc/self/gid_map", gid_map)))
		return false;
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("none", folder, "tmpfs", 0, "size=72k") == 0;
}

static void test_a_full_file_system_is_an_error_and_leaves_no_file(void)
{
	struct nupa_fabric *fabric = NULL;
	struct nupa_config config = small;
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		void *at;

		if (!mount_small_tmpfs())
			_exit(77);
		config.slots = 256;
		CHECK(try_create(path, &config, &fabric) == -ENOSPC && strstr(why, "full"));
		CHECK(access(path, F_OK) < 0);
		CHECK(try_create(path, &small, &fabric) == 0);
		CHECK(nupa_fabric_back(fabric, arena_at(fabric, 1), 16 * EXTENT) == -ENOSPC);
		CHECK(nupa_pool_alloc(fabric, 0, 8 * EXTENT, &at) == 0);
		CHECK(nupa_fabric_back(fabric, arena_at(fabric, 1), 6 * EXTENT) == -ENOSPC);
		CHECK(nupa_pool_free(fabric, 0, at, 8 * EXTENT) == 0);
		CHECK(nupa_fabric_back(fabric, arena_at(fabric, 1), 10 * EXTENT) == 0);
		CHECK(nupa_pool_alloc(fabric, 0, 8 * EXTENT, &at) == -ENOSPC);
		CHECK(fabric->extents[0] == 0);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
	if (WEXITSTATUS(status) == 77)
		puts("skipped: a full file system (no user namespaces here)");
}

int main(void)
{
	CHECK(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/a", folder);
	snprintf(other_path, sizeof(other_path), "%s/b", folder);
	test_defaults_are_sparse();
	test_opened_again_says_the_same();
	test_one_past_each_limit_is_refused_and_leaves_no_file();
	test_the_largest_limits_are_accepted();
	test_tables_that_contradict_themselves_are_refused();
	test_what_is_no_fabric_is_refused_and_named();
	test_damaged_segments_are_refused_and_named();
	test_another_user_has_no_permission();
	test_a_file_size_limit_is_an_error_and_no_signal();
	test_questions_about_unused_slots_back_no_memory();
	test_tables_flows_and_movers_are_read();
	test_liveness_needs_pid_and_start_time();
	test_reaping_frees_the_dead_and_spares_the_living();
	test_slots_are_claimed_until_none_is_free();
	test_traffic_outlives_its_attachment_and_keeps_its_host();
	test_an_owner_frees_its_slot_and_nobody_else_does();
	test_a_port_that_goes_down_is_counted_and_wakes_sleepers();
	test_pool_memory_is_claimed_returned_and_bounded();
	test_threads_never_get_the_same_pool_memory();
	test_threads_may_be_the_first_to_use_the_pool_at_once();
	test_a_full_file_system_is_an_error_and_leaves_no_file();
	CHECK(rmdir(folder) == 0);
	puts("segment: ok");
	return 0;
}
