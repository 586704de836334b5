/* SPDX-License-Identifier: BSD-3-Clause
 * The director's commands, a line each, on standard input. */
#include "soak.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool finish_asked;

static struct end *end_of(uint32_t id)
{
	for (uint32_t i = 0; i < ENDS_MAX; i++)
		if (worker.ends[i] && worker.ends[i]->id == id && !worker.ends[i]->dying)
			return worker.ends[i];
	return NULL;
}

static bool parse_gid(const char *text, union ibv_gid *gid)
{
	for (int i = 0; i < 16; i++)
		if (sscanf(text + 2 * i, "%2hhx", &gid->raw[i]) != 1)
			return false;
	return true;
}

/* The peer, or the way to it, has gone before the end could be used. */
static void give_back(struct end *end)
{
	tell("down %u %d %" PRIu64 " %" PRIu64, end->id, (int)IBV_WC_WR_FLUSH_ERR, clock_ns(),
	     clock_ns());
	end_die(end);
}

static void make(const struct plan *plan)
{
	union ibv_gid gid;
	struct end *end;
	uint32_t place = 0;
	char text[33];

	while (place < ENDS_MAX && worker.ends[place])
		place++;
	if (place == ENDS_MAX)
		give_up("more than %u ends", ENDS_MAX);
	end = end_make(plan);
	worker.ends[place] = end;
	if (ibv_query_gid(worker.context, 1, worker.gid_index, &gid)) {
		must(worker.network, "ibv_query_gid");
		give_back(end);
		return;
	}
	for (int i = 0; i < 16; i++)
		snprintf(text + 2 * i, 3, "%02x", gid.raw[i]);
	tell("address %u %u %u %u %u %s %u %" PRIu64 " %u %" PRIu64, end->id, end->recv_qp->qp_num,
	     end->qp->qp_num, end->service == SERVICE_XRC ? xrc_srq_number() : 0,
	     end->id & 0xffffff, text, end->mr->rkey, (uint64_t)(uintptr_t)end->memory,
	     end->dm ? end->dm_mr->rkey : end->mr->rkey,
	     end->dm ? 0 : (uint64_t)(uintptr_t)end->memory + PLACE_WORDS);
}

static void join(uint32_t id, const struct address *peer)
{
	struct end *end = end_of(id);

	if (!end)
		return;
	end->peer = *peer;
	if (end_to_ready(end))
		tell("ready %u", id);
	else
		give_back(end);
}

static void drop(uint32_t id)
{
	struct end *end = end_of(id);

	if (end)
		end_die(end);
}

static void go(struct end *end)
{
	if (!end_go(end))
		give_back(end);
}

static bool obey(const char *line)
{
	struct address peer;
	struct plan plan;
	uint32_t id, service, first;
	uint64_t seed;
	char gid[33];

	if (sscanf(line, "make %u %u %u %" SCNu64 " %u", &plan.id, &service, &plan.dress,
		   &plan.seed, &first) == 5) {
		plan.service = (enum service)service;
		plan.first = first;
		make(&plan);
	} else if (sscanf(line, "join %u %u %u %u %u %32s %u %" SCNu64 " %u %" SCNu64, &id,
			  &peer.qpn, &peer.send_qpn, &peer.srqn, &peer.psn, gid, &peer.rkey,
			  &peer.memory, &peer.words_rkey, &peer.words) == 10 &&
		   parse_gid(gid, &peer.gid))
		join(id, &peer);
	else if (sscanf(line, "go %u", &id) == 1 && end_of(id))
		go(end_of(id));
	else if (sscanf(line, "drop %u", &id) == 1)
		drop(id);
	else if (sscanf(line, "meet %u %u %32s", &id, &peer.qpn, gid) == 3 &&
		 parse_gid(gid, &peer.gid))
		datagrams_meet(id, peer.qpn, &peer.gid);
	else if (sscanf(line, "dial %32s %u %" SCNu64, gid, &id, &seed) == 3)
		dials_begin(gid, id, seed);
	else if (strcmp(line, "finish") == 0)
		finish_asked = true;
	else if (strncmp(line, "go ", 3) != 0)
		return false;
	return true;
}

void hear(void)
{
	char line[512];
	ssize_t bytes;

	while ((bytes = recv(STDIN_FILENO, line, sizeof(line) - 1, MSG_DONTWAIT)) > 0) {
		line[bytes] = 0;
		if (!obey(line))
			give_up("does not understand: %s", line);
	}
	if (bytes == 0)
		_exit(97); /* the director is gone */
}
