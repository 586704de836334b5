/* SPDX-License-Identifier: BSD-3-Clause
 * Recordings: what calls of a program leave in its file, read back record by record. */
#define _GNU_SOURCE
#include "engine/record/record.h"
#include "engine/device/device.h"
#include "tests/support/target.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES 2u

struct stage {
	char folder[64];
	struct nupa_fabric *fabric;
	struct end *a, *b;
};

struct read_back {
	struct nupa_record_header header;
	struct nupa_record *records; /* the body, and the tail to the first one without a kind */
	uint32_t n;
};

static struct stage stage_open(enum ibv_qp_type type, enum nupa_mover mover)
{
	struct stage s = { .folder = "/tmp/nupa-record-XXXXXX" };
	struct end_options options = end_options_of(mover);

	options.type = type;
	CHECK(mkdtemp(s.folder));
	setenv("NUPA_RECORD", s.folder, 1);
	s.fabric = test_fabric();
	pair_open(s.fabric, &options, &s.a, &s.b);
	unsetenv("NUPA_RECORD");
	return s;
}

/* The file of one host, as it is now. */
static struct read_back read_file(const struct stage *s, uint32_t host)
{
	struct read_back found = { 0 };
	DIR *folder = opendir(s->folder);
	struct dirent *entry;

	CHECK(folder);
	while ((entry = readdir(folder))) {
		char path[512];
		struct stat stat;
		uint32_t records;
		int fd;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", s->folder, entry->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		CHECK(fd >= 0);
		CHECK_EQ(pread(fd, &found.header, sizeof(found.header), 0), sizeof(found.header));
		CHECK_EQ(fstat(fd, &stat), 0);
		if (found.header.host == host) {
			struct nupa_record tail[NUPA_RECORD_TAIL_BYTES / 32];

			CHECK_EQ(pread(fd, tail, sizeof(tail), NUPA_RECORD_HEADER_BYTES),
				 sizeof(tail));
			records = (uint32_t)(stat.st_size - NUPA_RECORD_BODY_OFFSET) / 32;
			CHECK_EQ(records, found.header.body_records);
			found.records = calloc(records + 512, sizeof(*found.records));
			CHECK_EQ(pread(fd, found.records, records * 32, NUPA_RECORD_BODY_OFFSET),
				 records * 32);
			found.n = records;
			for (uint32_t i = 0; i < 512 && tail[i].kind; i++)
				found.records[found.n++] = tail[i];
			close(fd);
			break;
		}
		close(fd);
	}
	closedir(folder);
	CHECK(found.records);
	CHECK(!memcmp(found.header.magic, NUPA_RECORD_MAGIC, 8));
	return found;
}

/* The index of the n-th record of that kind. */
static uint32_t nth(const struct read_back *found, enum nupa_record_kind kind, uint32_t n)
{
	for (uint32_t i = 0; i < found->n; i++)
		if (found->records[i].kind == kind && n-- == 0)
			return i;
	return found->n;
}

static uint32_t count(const struct read_back *found, enum nupa_record_kind kind)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < found->n; i++)
		n += found->records[i].kind == kind;
	return n;
}

static void remove_folder(const struct stage *s)
{
	DIR *folder = opendir(s->folder);
	struct dirent *entry;

	CHECK(folder);
	while ((entry = readdir(folder))) {
		char path[512];

		snprintf(path, sizeof(path), "%s/%s", s->folder, entry->d_name);
		unlink(path);
	}
	closedir(folder);
	CHECK_EQ(rmdir(s->folder), 0);
}

static void stage_close(struct stage *s)
{
	fabric_close(s->fabric, s->a, s->b);
	remove_folder(s);
}

TEST(a_write_is_recorded_with_its_size_peer_times_and_completion)
{
	struct stage s = stage_open(IBV_QPT_RC, NUPA_MOVER_NONE);
	struct read_back found;
	const struct nupa_record *post, *taken, *qp;

	end_start(s.a, IBV_WR_RDMA_WRITE, 1, 0, 4096);
	cq_expect(s.a->send_cq, 1, IBV_WC_SUCCESS);
	found = read_file(&s, 0);
	qp = &found.records[nth(&found, NUPA_RECORD_QP, 0)];
	CHECK_EQ(qp->qpn, s.a->qp->qp_num);
	CHECK_EQ(qp->peer, s.b->qp->qp_num);
	CHECK_EQ(qp->bytes, 1);
	CHECK_EQ(qp->opcode, IBV_QPT_RC);
	CHECK_EQ(count(&found, NUPA_RECORD_POST), 1);
	post = &found.records[nth(&found, NUPA_RECORD_POST, 0)];
	CHECK_EQ(post->qpn, s.a->qp->qp_num);
	CHECK_EQ(post->bytes, 4096);
	CHECK_EQ(post->opcode, IBV_WR_RDMA_WRITE);
	CHECK_EQ(post->flags, NUPA_RECORD_SIGNALED);
	CHECK(post->took_ticks > 0);
	CHECK_EQ(count(&found, NUPA_RECORD_COMPLETION), 1);
	taken = &found.records[nth(&found, NUPA_RECORD_COMPLETION, 0)];
	CHECK_EQ(taken->qpn, s.a->qp->qp_num);
	CHECK_EQ(taken->status, IBV_WC_SUCCESS);
	CHECK(taken->ticks >= post->ticks + post->took_ticks);
	CHECK(taken->took_ticks <= taken->ticks - post->ticks);
	CHECK_EQ(taken->thread, post->thread);
	free(found.records);
	stage_close(&s);
}

TEST(a_completion_says_whether_its_own_post_made_it)
{
	struct stage s = stage_open(IBV_QPT_RC, NUPA_MOVER_RELAY);
	struct nupa_engine *target = nupa_engine_of(s.b->context);
	struct read_back found;
	struct ibv_wc wc;

	nupa_engine_lock(target); /* it answers when the first poll has found nothing */
	end_start(s.a, IBV_WR_RDMA_WRITE, 1, 0, 8);
	CHECK_EQ(nupa_poll_cq(s.a->send_cq, 1, &wc), 0);
	nupa_engine_unlock(target);
	cq_expect(s.a->send_cq, 1, IBV_WC_SUCCESS);
	found = read_file(&s, 0);
	CHECK_EQ(found.records[nth(&found, NUPA_RECORD_COMPLETION, 0)].flags, 0);
	CHECK(count(&found, NUPA_RECORD_WAIT) >= 1);
	CHECK_EQ(found.records[nth(&found, NUPA_RECORD_POST, 0)].mover, NUPA_MOVER_RELAY);
	free(found.records);
	stage_close(&s);
	s = stage_open(IBV_QPT_RC, NUPA_MOVER_NONE);
	for (uint32_t i = 0; i < 3; i++) { /* the first one finds its way */
		end_start(s.a, IBV_WR_RDMA_WRITE, 1, 0, 8);
		cq_expect(s.a->send_cq, 1, IBV_WC_SUCCESS);
	}
	found = read_file(&s, 0);
	CHECK_EQ(found.records[nth(&found, NUPA_RECORD_COMPLETION, 2)].flags,
		 NUPA_RECORD_MADE_IN_POST | NUPA_RECORD_AT_ONCE);
	free(found.records);
	stage_close(&s);
}

TEST(a_send_is_recorded_at_both_ends)
{
	struct stage s = stage_open(IBV_QPT_UD, NUPA_MOVER_NONE);
	struct read_back sender, receiver;
	const struct nupa_record *post, *taken;

	end_post_recv(s.b, 7, 0, 256);
	end_start(s.a, IBV_WR_SEND, 1, 0, 100);
	cq_expect(s.b->recv_cq, 7, IBV_WC_SUCCESS);
	cq_expect(s.a->send_cq, 1, IBV_WC_SUCCESS);
	sender = read_file(&s, 0);
	receiver = read_file(&s, 1);
	post = &sender.records[nth(&sender, NUPA_RECORD_POST, 0)];
	CHECK_EQ(post->peer, s.b->qp->qp_num);
	CHECK_EQ(post->bytes, 100);
	taken = &receiver.records[nth(&receiver, NUPA_RECORD_COMPLETION, 0)];
	CHECK_EQ(taken->opcode, IBV_WC_RECV);
	CHECK_EQ(taken->peer, s.a->qp->qp_num);
	CHECK_EQ(taken->bytes, 140); /* man ibv_poll_cq: with the GRH */
	free(sender.records);
	free(receiver.records);
	stage_close(&s);
}

TEST(requests_of_one_call_are_marked_and_a_refused_one_is_not_recorded)
{
	struct stage s = stage_open(IBV_QPT_RC, NUPA_MOVER_NONE);
	struct request first = request_of(s.a, IBV_WR_RDMA_WRITE, 1, 0, 8);
	struct request second = request_of(s.a, IBV_WR_RDMA_READ, 2, 0, 16);
	struct request refused = request_of(s.a, IBV_WR_RDMA_WRITE, 3, 0, 32);
	struct ibv_send_wr *bad;
	struct read_back found;
	uint32_t at;

	first.wr.sg_list = first.sge;
	second.wr.sg_list = second.sge;
	refused.wr.sg_list = refused.sge;
	first.wr.next = &second.wr;
	second.wr.next = &refused.wr;
	refused.wr.num_sge = 1000;
	CHECK_EQ(nupa_post_send(s.a->qp, &first.wr, &bad), EINVAL);
	CHECK(bad == &refused.wr);
	found = read_file(&s, 0);
	CHECK_EQ(count(&found, NUPA_RECORD_POST), 2);
	at = nth(&found, NUPA_RECORD_POST, 0);
	CHECK_EQ(found.records[at].flags & NUPA_RECORD_SAME_CALL, 0);
	CHECK_EQ(found.records[at + 1].flags & NUPA_RECORD_SAME_CALL, NUPA_RECORD_SAME_CALL);
	CHECK_EQ(found.records[at + 1].opcode, IBV_WR_RDMA_READ);
	CHECK_EQ(found.records[at].ticks, found.records[at + 1].ticks);
	free(found.records);
	stage_close(&s);
}

TEST(a_recording_continues_when_its_tail_is_full)
{
	struct stage s = stage_open(IBV_QPT_RC, NUPA_MOVER_NONE);
	const uint32_t writes = 2 * NUPA_RECORD_TAIL_BYTES / 32;
	struct read_back found;

	for (uint32_t i = 0; i < writes; i++) {
		end_start(s.a, IBV_WR_RDMA_WRITE, i, 0, 8);
		cq_expect(s.a->send_cq, i, IBV_WC_SUCCESS);
	}
	found = read_file(&s, 0);
	CHECK_EQ(count(&found, NUPA_RECORD_POST), writes);
	CHECK_EQ(count(&found, NUPA_RECORD_COMPLETION), writes);
	CHECK(count(&found, NUPA_RECORD_CLOCK) >= 5); /* one for each tail */
	CHECK(found.header.body_records >= 2 * writes - 512);
	for (uint32_t i = 1; i < found.n; i++)
		if (found.records[i].kind == NUPA_RECORD_POST)
			CHECK(found.records[i].ticks > found.header.start_ticks);
	free(found.records);
	stage_close(&s);
}

TEST(of_equal_small_posts_every_eighth_is_timed_and_none_begins_before_the_call_before_it)
{
	struct stage s = stage_open(IBV_QPT_RC, NUPA_MOVER_NONE);
	struct read_back found;
	uint64_t until = 0;
	uint32_t timed = 0, posts = 0;

	for (uint32_t i = 0; i < 64; i++) {
		end_start(s.a, IBV_WR_RDMA_WRITE, i, 0, 8);
		cq_expect(s.a->send_cq, i, IBV_WC_SUCCESS);
	}
	end_start(s.a, IBV_WR_RDMA_WRITE, 64, 0, 16);
	end_start(s.a, IBV_WR_RDMA_WRITE, 65, 0, 4096);
	end_start(s.a, IBV_WR_RDMA_WRITE, 66, 0, 4096);
	found = read_file(&s, 0);
	for (uint32_t i = 0; i < found.n; i++) {
		const struct nupa_record *record = &found.records[i];

		if (record->kind == NUPA_RECORD_POST) {
			CHECK(record->ticks >= until);
			until = record->ticks + record->took_ticks;
			timed += !(record->flags & NUPA_RECORD_AS_BEFORE);
			if (++posts == 64)
				CHECK_EQ(timed, 8);
		}
	}
	CHECK_EQ(posts, 67);
	CHECK_EQ(timed, 11); /* another size, and large ones */
	free(found.records);
	stage_close(&s);
}

/* What is in the file after the process left, if it wrote so often and waited once or not. */
static uint8_t last_kind(uint32_t writes, bool waits)
{
	struct stage s = stage_open(IBV_QPT_RC, NUPA_MOVER_NONE);
	struct read_back found;
	struct ibv_wc wc;
	uint8_t kind;

	for (uint32_t i = 0; i < writes; i++) {
		end_start(s.a, IBV_WR_RDMA_WRITE, i, 0, 8);
		cq_expect(s.a->send_cq, i, IBV_WC_SUCCESS);
	}
	if (waits)
		CHECK_EQ(nupa_poll_cq(s.a->send_cq, 1, &wc), 0);
	fabric_close(s.fabric, s.a, s.b);
	found = read_file(&s, 0);
	kind = found.records[found.n - 1].kind;
	free(found.records);
	remove_folder(&s);
	return kind;
}

TEST(a_recording_says_that_its_process_left_wherever_its_tail_ends)
{
	const uint32_t most = NUPA_RECORD_TAIL_BYTES / 64;

	for (uint32_t writes = most - 6; writes <= most + 1; writes++)
		for (uint32_t waits = 0; waits < 2; waits++)
			CHECK_EQ(last_kind(writes, waits), NUPA_RECORD_LEFT);
}

TEST(a_host_whose_name_has_slashes_is_recorded_in_the_folder)
{
	struct stage s = { .folder = "/tmp/nupa-record-XXXXXX" };
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct read_back found;

	CHECK(mkdtemp(s.folder));
	setenv("NUPA_RECORD", s.folder, 1);
	s.fabric = test_fabric();
	snprintf(s.fabric->hosts[0].name, sizeof(s.fabric->hosts[0].name), "up/../../x");
	pair_open(s.fabric, &options, &s.a, &s.b);
	unsetenv("NUPA_RECORD");
	found = read_file(&s, 0);
	CHECK(!strcmp(found.header.host_name, "up/../../x"));
	free(found.records);
	stage_close(&s);
}

TEST(a_child_records_nothing_in_its_parents_file)
{
	struct stage s = stage_open(IBV_QPT_RC, NUPA_MOVER_NONE);
	struct read_back found;
	pid_t child = fork();

	if (child == 0) {
		CHECK(!nupa_engine_of(s.a->context)->recorder);
		_exit(0);
	}
	CHECK_CHILD(child);
	end_start(s.a, IBV_WR_RDMA_WRITE, 1, 0, 8);
	cq_expect(s.a->send_cq, 1, IBV_WC_SUCCESS);
	found = read_file(&s, 0);
	CHECK_EQ(count(&found, NUPA_RECORD_POST), 1);
	CHECK_EQ(count(&found, NUPA_RECORD_LEFT), 0);
	free(found.records);
	stage_close(&s);
}

TEST(a_folder_that_is_not_there_costs_the_recording_and_not_the_program)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct end *a, *b;

	setenv("NUPA_RECORD", "/nowhere/at/all", 1);
	pair_open(fabric, &options, &a, &b);
	unsetenv("NUPA_RECORD");
	CHECK(!nupa_engine_of(a->context)->recorder);
	end_start(a, IBV_WR_RDMA_WRITE, 1, 0, 8);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	fabric_close(fabric, a, b);
}
