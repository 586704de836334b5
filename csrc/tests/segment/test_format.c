/* SPDX-License-Identifier: BSD-3-Clause
 * The segment's file: made, opened, and refused when it is not what it claims. */
#include "tests/segment/small_segment.h"
#include "base/atomics.h"
#include "region/slot_life.h"
#include "segment/layout/qpn.h"
#include "segment/slot/counters.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int try_open(const char *at)
{
	struct nupa_fabric *fabric = NULL;
	int rc;

	segment_why[0] = 0;
	rc = nupa_fabric_open(at, &fabric, segment_why, sizeof(segment_why));
	CHECK((rc == 0) == (fabric != NULL));
	CHECK((rc == 0) == (segment_why[0] == 0));
	if (fabric)
		nupa_fabric_put(fabric);
	return rc;
}

/* Refused with *error*, and *why* holds *text*. */
static void refused(const char *at, int error, const char *text)
{
	int rc = try_open(at);

	if (rc != -error || !strstr(segment_why, text)) {
		fprintf(stderr, "got %d (%s) instead of %d (%s)\n", rc, segment_why, -error, text);
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
	int fd = open(segment_other_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	CHECK(ftruncate(fd, (off_t)fabric->sb->segment_bytes) == 0);
	CHECK(pwrite(fd, fabric->sb, fabric->sb->arenas_off, 0) == (ssize_t)fabric->sb->arenas_off);
	close(fd);
}

TEST(defaults_are_sparse)
{
	struct nupa_fabric *fabric = segment_create(segment_path, NULL);
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
	CHECK(segment_try_create(segment_path, NULL, &fabric) == -EEXIST);
	nupa_fabric_put(fabric);
	unlink(segment_path);
}

TEST(opened_again_says_the_same)
{
	struct nupa_config config = segment_small;
	struct nupa_fabric *made, *opened = NULL;

	config.flags = NUPA_SEGMENT_AUTO;
	made = segment_create(segment_path, &config);
	CHECK(nupa_fabric_open(segment_path, &opened, segment_why, sizeof(segment_why)) == 0);
	CHECK(nupa_fabric_n_hosts(opened) == SEGMENT_HOSTS &&
	      nupa_fabric_n_ports(opened) == SEGMENT_PORTS);
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
	unlink(segment_path);
}

TEST(one_past_each_limit_is_refused_and_leaves_no_file)
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
		CHECK(segment_try_create(segment_path, &bad[i], &fabric) == -EINVAL);
		CHECK(segment_why[0] && !fabric && access(segment_path, F_OK) < 0);
	}
}

TEST(the_largest_limits_are_accepted)
{
	const struct nupa_config largest = {
		.slots = NUPA_SLOTS_MAX,
		.ring_lines = NUPA_RING_LINES_MAX,
		.dma_bytes = NUPA_DMA_BYTES_MAX,
		.qp_entries = 1u << NUPA_QP_INDEX_BITS_MANY,
		.mr_entries = NUPA_MR_MAX,
		.extent_bytes = 1u << 20,
		.pool_bytes = NUPA_POOL_BYTES_MAX,
	};
	struct nupa_fabric *fabric = segment_create(segment_path, &largest);

	CHECK(fabric->sb->n_extents == NUPA_EXTENTS_MAX);
	nupa_fabric_put(fabric);
	CHECK(try_open(segment_path) == 0);
	unlink(segment_path);
}

static int create_tables(const char *name, const struct nupa_host *h, uint32_t n_hosts,
			 const struct nupa_port *p, uint32_t n_ports, const struct nupa_route *r)
{
	struct nupa_fabric *fabric = NULL;
	int rc = nupa_fabric_create(NULL, name, &segment_small, h, n_hosts, p, n_ports, r, &fabric,
				    segment_why, sizeof(segment_why));

	if (fabric)
		nupa_fabric_put(fabric);
	return rc;
}

TEST(tables_that_contradict_themselves_are_refused)
{
	struct nupa_host h[SEGMENT_HOSTS];
	struct nupa_port p[SEGMENT_PORTS];
	struct nupa_route r[SEGMENT_HOSTS * SEGMENT_HOSTS];
	char long_name[65];

#define REFUSED_WITH(statement)                                                                    \
	do {                                                                                       \
		memcpy(h, segment_hosts, sizeof(h));                                               \
		memcpy(p, segment_ports, sizeof(p));                                               \
		memcpy(r, segment_routes, sizeof(r));                                              \
		statement;                                                                         \
		CHECK(create_tables("test", h, SEGMENT_HOSTS, p, SEGMENT_PORTS, r) == -EINVAL);    \
	} while (0)
	REFUSED_WITH(memset(h[1].name, 'x', sizeof(h[1].name)));
	REFUSED_WITH(h[1].name[0] = 0);
	REFUSED_WITH(h[1].port = SEGMENT_PORTS);
	REFUSED_WITH(h[1].port = 1);
	REFUSED_WITH(h[1].link_layer = 3);
	REFUSED_WITH(memset(p[2].name, 'x', sizeof(p[2].name)));
	REFUSED_WITH(p[2].peer = SEGMENT_PORTS);
	REFUSED_WITH(p[2].peer = 2);
	REFUSED_WITH(p[2].peer = 0);
	REFUSED_WITH(p[0].node = SEGMENT_HOSTS);
	REFUSED_WITH(p[2].width_lanes = 0);
	REFUSED_WITH(r[1].hops = NUPA_HOPS_MAX + 1);
	REFUSED_WITH(r[1].hops = 0);
	REFUSED_WITH(r[1].port[2] = SEGMENT_PORTS);
	REFUSED_WITH(r[1].port[0] = 1);
#undef REFUSED_WITH
	CHECK(create_tables("test", segment_hosts, NUPA_HOSTS_MAX + 1, segment_ports, SEGMENT_PORTS,
			    segment_routes) == -EINVAL);
	CHECK(create_tables("test", segment_hosts, 0, segment_ports, SEGMENT_PORTS,
			    segment_routes) == -EINVAL);
	CHECK(create_tables("test", segment_hosts, SEGMENT_HOSTS, segment_ports, NUPA_PORTS_MAX + 1,
			    segment_routes) == -EINVAL);
	memset(long_name, 'n', sizeof(long_name));
	long_name[64] = 0;
	CHECK(create_tables(long_name, segment_hosts, SEGMENT_HOSTS, segment_ports, SEGMENT_PORTS,
			    segment_routes) == -EINVAL);
	CHECK(create_tables("", segment_hosts, SEGMENT_HOSTS, segment_ports, SEGMENT_PORTS,
			    segment_routes) == -EINVAL);
	long_name[63] = 0;
	CHECK(create_tables(long_name, segment_hosts, SEGMENT_HOSTS, segment_ports, SEGMENT_PORTS,
			    segment_routes) == 0);
}

TEST(files_that_are_no_fabric_are_refused_and_named)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char long_path[300];
	int fd;

	refused("/dev/shm/nupa-no-such-fabric", ENOENT, "nupa up");
	refused("/dev/shm", EINVAL, "not a regular file");
	refused("/dev/null", EINVAL, "not a regular file");
	CHECK(mkfifo(segment_other_path, 0600) == 0);
	refused(segment_other_path, EINVAL, "not a regular file");
	unlink(segment_other_path);
	memcpy(address.sun_path, segment_other_path, sizeof(segment_other_path));
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(fd >= 0);
	CHECK(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	refused(segment_other_path, EINVAL, "not a regular file");
	close(fd);
	unlink(segment_other_path);
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

TEST(damaged_segments_are_refused_and_named)
{
	struct nupa_fabric *fabric = segment_create(segment_path, &segment_small);
	const uint64_t bytes = fabric->sb->segment_bytes;
	uint8_t *noise = malloc(bytes);
	uint64_t word = 0, random_state = 7;
	uint32_t version = NUPA_LAYOUT_VERSION + 1;
	char text[64];
	int rc;

	CHECK(noise);
	copy_segment(fabric);
	CHECK(try_open(segment_other_path) == 0);
	write_at(segment_other_path, offsetof(struct nupa_superblock, layout_version), &version, 4);
	snprintf(text, sizeof(text), "version %u, this program speaks version %u", version,
		 NUPA_LAYOUT_VERSION);
	refused(segment_other_path, EPROTONOSUPPORT, text);

	copy_segment(fabric);
	write_at(segment_other_path, 0, &word, 8);
	refused(segment_other_path, ENODATA, "never finished");
	copy_segment(fabric);
	CHECK(truncate(segment_other_path, (off_t)bytes - 1) == 0);
	refused(segment_other_path, EMSGSIZE, "truncated");
	CHECK(truncate(segment_other_path, 319) == 0);
	refused(segment_other_path, EMSGSIZE, "319 bytes");
	CHECK(truncate(segment_other_path, 0) == 0);
	refused(segment_other_path, EMSGSIZE, "truncated");
	CHECK(truncate(segment_other_path, (off_t)bytes) == 0);
	refused(segment_other_path, ENODATA, "zeroed");

	for (int round = 0; round < 20; round++) {
		fill_with_noise(noise, bytes, &random_state);
		write_at(segment_other_path, 0, noise, bytes);
		refused(segment_other_path, EILSEQ, "no fabric");
		word = NUPA_MAGIC;
		version = NUPA_LAYOUT_VERSION;
		write_at(segment_other_path, 0, &word, 8);
		write_at(segment_other_path, 8, &version, 4);
		refused(segment_other_path, EUCLEAN, "corrupt");
	}
	/* Each byte of the immutable part, one bit changed: none may pass. */
	copy_segment(fabric);
	for (uint64_t at = 0; at < fabric->sb->routes_off + sizeof(segment_routes); at++) {
		uint8_t byte = ((uint8_t *)fabric->sb)[at];
		uint64_t in_port = (at - fabric->sb->ports_off) % sizeof(struct nupa_port);
		bool mutable = (at >= offsetof(struct nupa_superblock, checksum) + 4 &&
				at < sizeof(struct nupa_superblock)) ||
			       (at >= fabric->sb->ports_off && at < fabric->sb->routes_off &&
				in_port >= offsetof(struct nupa_port, state));

		byte ^= (uint8_t)(1u << at % 8);
		write_at(segment_other_path, at, &byte, 1);
		rc = try_open(segment_other_path);
		CHECK((rc == 0) == mutable);
		byte ^= (uint8_t)(1u << at % 8);
		write_at(segment_other_path, at, &byte, 1);
	}
	/* Noise in all that others may write: opens, and every question has a safe answer. */
	copy_segment(fabric);
	write_at(segment_other_path, fabric->sb->slots_off, noise, bytes - fabric->sb->slots_off);
	nupa_fabric_put(fabric);
	CHECK(nupa_fabric_open(segment_other_path, &fabric, segment_why, sizeof(segment_why)) == 0);
	for (uint32_t from = 0; from < 300; from++) {
		struct nupa_slot_info info;
		struct nupa_flow_info flow;

		rc = nupa_fabric_slot(fabric, from, &info);
		CHECK(rc <= 0);
		CHECK(rc || (info.host < SEGMENT_HOSTS && info.qps <= 600 && info.mrs <= 600));
		CHECK(rc || memchr(info.comm, 0, sizeof(info.comm)));
		CHECK(nupa_fabric_flow(fabric, from, from % 3, &flow) <= 0);
		for (uint32_t to = 0; to < 300; to++)
			CHECK(nupa_fabric_mover(fabric, from, to) <= 4);
	}
	CHECK(nupa_fabric_reap(fabric) >= 0);
	nupa_fabric_put(fabric);
	free(noise);
	unlink(segment_path);
	unlink(segment_other_path);
}

TEST(another_user_has_no_permission)
{
	struct nupa_fabric *fabric = segment_create(segment_path, &segment_small);
	int status;
	pid_t child;

	if (geteuid() == 0) {
		CHECK(chmod(segment_folder, 0755) == 0);
		child = fork();
		if (child == 0) {
			if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
				_exit(2);
			_exit(try_open(segment_path) == -EACCES && strstr(segment_why, "permission")
				  ? 0
				  : 1);
		}
	} else {
		CHECK(chmod(segment_path, 0) == 0);
		child = fork();
		if (child == 0)
			_exit(try_open(segment_path) == -EACCES && strstr(segment_why, "permission")
				  ? 0
				  : 1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	nupa_fabric_put(fabric);
	unlink(segment_path);
}

TEST(a_file_size_limit_is_an_error_and_no_signal)
{
	struct nupa_fabric *fabric = NULL;
	struct rlimit limit, old;

	CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
	limit = old;
	limit.rlim_cur = 1 << 20;
	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	CHECK(segment_try_create(segment_path, NULL, &fabric) == -EFBIG &&
	      strstr(segment_why, "ulimit -f"));
	CHECK(access(segment_path, F_OK) < 0);
	CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
}

int main(int argc, char **argv)
{
	return segment_main(argc, argv);
}
