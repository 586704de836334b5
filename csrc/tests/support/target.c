/* SPDX-License-Identifier: BSD-3-Clause
 * The other end of a connection: see target.h. */
#define _GNU_SOURCE
#include "tests/support/target.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum verb {
	OPEN,
	CLOSE,
	TO_RESET,
	TO_INIT,
	TO_RTR,
	TO_RTS,
	POST_RECV,
	EXPECT,
	FILL,
	CHECK_FILLED,
	WORD,
	SET_WORD,
	FOR_EVER,
};

struct command {
	enum verb verb;
	uint32_t offset, length, seed;
	uint64_t wr_id, value;
	enum ibv_wc_status status;
	enum target_habit habit;
	struct end_options options;
	struct end_address peer;
};

struct answer {
	struct ibv_wc wc;
	uint64_t value;
	struct end_address address;
};

/* Takes the engine's lock once, as each verb does.  The order of accesses to the region by this
 * process and by the engine's threads came from the other process, unseen by TSan. */
static void meet_engine(struct end *end)
{
	(void)end_state(end);
}

/* Starts as much as fits, and takes completions; an end whose peer died goes on all the same. */
static void post_for_ever(struct end *end, enum ibv_wr_opcode opcode, uint32_t length)
{
	struct request request = request_of(end, opcode, 0, 0, length);
	struct ibv_send_wr *bad;

	request.wr.sg_list = request.sge;
	for (;;) {
		struct ibv_wc wc;

		(void)nupa_post_send(end->qp, &request.wr, &bad); /* full at times */
		CHECK(nupa_poll_cq(end->send_cq, 1, &wc) >= 0);
	}
}

static void register_for_ever(struct end *end)
{
	for (;;) {
		struct ibv_mr *mr = nupa_reg_mr(end->pd, end->memory, end->options.memory_bytes, 0,
						IBV_ACCESS_LOCAL_WRITE);

		CHECK(mr);
		CHECK_EQ(nupa_dereg_mr(mr), 0);
	}
}

static void receive_for_ever(struct end *end, uint32_t length)
{
	uint64_t posted = 0, got = 0;

	for (;;) {
		struct ibv_wc wc;

		for (; posted - got < end->options.recv_wr; posted++)
			end_post_recv(end, posted, 0, length);
		if (nupa_poll_cq(end->recv_cq, 1, &wc) == 1)
			got++;
	}
}

static void poll_for_ever(struct end *end)
{
	for (;;) {
		struct ibv_wc wc;

		CHECK(nupa_poll_cq(end->recv_cq, 1, &wc) >= 0);
	}
}

static void live_on(struct end *end, enum target_habit habit, uint32_t length)
{
	switch (habit) {
	case TARGET_POLLS:
		poll_for_ever(end);
		break;
	case TARGET_SENDS:
		post_for_ever(end, IBV_WR_SEND, length);
		break;
	case TARGET_WRITES:
		post_for_ever(end, IBV_WR_RDMA_WRITE, length);
		break;
	case TARGET_READS:
		post_for_ever(end, IBV_WR_RDMA_READ, length);
		break;
	case TARGET_REGISTERS:
		register_for_ever(end);
		break;
	case TARGET_RECEIVES:
		receive_for_ever(end, length);
		break;
	case TARGET_EXITS:
		_exit(0);
	}
}

static struct answer execute(struct end **end, struct nupa_fabric *fabric,
			     const struct command *command)
{
	struct answer answer = { 0 };
	uint8_t *at = *end ? (*end)->memory + command->offset : NULL;

	CHECK(*end || command->verb == OPEN);
	if (*end)
		meet_engine(*end);
	switch (command->verb) {
	case OPEN:
		*end = end_open(fabric, &command->options);
		answer.address = (*end)->self;
		break;
	case CLOSE:
		end_close(*end);
		*end = NULL;
		return answer;
	case TO_RESET:
		CHECK_EQ(end_modify(*end, IBV_QPS_RESET), 0);
		break;
	case TO_INIT:
		end_to_init(*end);
		break;
	case TO_RTR:
		end_to_rtr(*end, &command->peer);
		break;
	case TO_RTS:
		end_to_rts(*end);
		break;
	case POST_RECV:
		end_post_recv(*end, command->wr_id, command->offset, command->length);
		break;
	case EXPECT:
		answer.wc = cq_expect((*end)->recv_cq, command->wr_id, command->status);
		break;
	case FILL:
		pattern_fill(at, command->length, command->seed);
		break;
	case CHECK_FILLED:
		CHECK_PATTERN(at, command->length, command->seed);
		break;
	case WORD:
		memcpy(&answer.value, at, sizeof(answer.value));
		break;
	case SET_WORD:
		memcpy(at, &command->value, sizeof(command->value));
		break;
	case FOR_EVER:
		break;
	}
	meet_engine(*end);
	return answer;
}

static void serve(struct nupa_fabric *fabric, int socket)
{
	struct end *end = NULL;
	struct command command;

	while (read(socket, &command, sizeof(command)) == (ssize_t)sizeof(command)) {
		struct answer answer = execute(&end, fabric, &command);

		CHECK_EQ(write(socket, &answer, sizeof(answer)), sizeof(answer));
		if (command.verb == FOR_EVER && end)
			live_on(end, command.habit, command.length);
		if (command.verb == CLOSE)
			break;
	}
	nupa_fabric_put(fabric);
	exit(end != NULL);
}

static struct answer tell(struct target *target, struct nupa_fabric *fabric,
			  const struct command *command)
{
	struct answer answer;

	if (!target->pid)
		return execute(&target->end, fabric, command);
	CHECK_EQ(write(target->socket, command, sizeof(*command)), sizeof(*command));
	CHECK_EQ(read(target->socket, &answer, sizeof(answer)), sizeof(answer));
	return answer;
}

struct target target_here(void)
{
	return (struct target){ .socket = -1 };
}

struct target target_fork(struct nupa_fabric *fabric)
{
	struct target target = { 0 };
	int sockets[2];

	CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
	target.pid = fork();
	CHECK(target.pid >= 0);
	if (target.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(sockets[0]);
		serve(fabric, sockets[1]);
	}
	close(sockets[1]);
	target.socket = sockets[0];
	return target;
}

void target_open(struct target *target, struct nupa_fabric *fabric,
		 const struct end_options *options)
{
	struct command command = { .verb = OPEN, .options = *options };

	command.options.host = 1;
	target->address = tell(target, fabric, &command).address;
}

void target_close(struct target *target)
{
	tell(target, NULL, &(struct command){ .verb = CLOSE });
	if (!target->pid)
		return;
	CHECK_CHILD(target->pid);
	close(target->socket);
}

void target_to_reset(struct target *target)
{
	tell(target, NULL, &(struct command){ .verb = TO_RESET });
}

void target_to_init(struct target *target)
{
	tell(target, NULL, &(struct command){ .verb = TO_INIT });
}

void target_to_rtr(struct target *target, const struct end_address *peer)
{
	tell(target, NULL, &(struct command){ .verb = TO_RTR, .peer = *peer });
}

void target_to_rts(struct target *target)
{
	tell(target, NULL, &(struct command){ .verb = TO_RTS });
}

void target_connect(struct target *target, const struct end_address *peer)
{
	target_to_init(target);
	target_to_rtr(target, peer);
	target_to_rts(target);
}

void target_post_recv(struct target *target, uint64_t wr_id, uint32_t offset, uint32_t length)
{
	tell(target, NULL,
	     &(struct command){
		 .verb = POST_RECV, .wr_id = wr_id, .offset = offset, .length = length });
}

struct ibv_wc target_expect(struct target *target, uint64_t wr_id, enum ibv_wc_status status)
{
	return tell(target, NULL,
		    &(struct command){ .verb = EXPECT, .wr_id = wr_id, .status = status })
	    .wc;
}

void target_fill(struct target *target, uint32_t offset, uint32_t length, uint32_t seed)
{
	tell(target, NULL,
	     &(struct command){ .verb = FILL, .offset = offset, .length = length, .seed = seed });
}

void target_check(struct target *target, uint32_t offset, uint32_t length, uint32_t seed)
{
	tell(target, NULL,
	     &(struct command){
		 .verb = CHECK_FILLED, .offset = offset, .length = length, .seed = seed });
}

uint64_t target_word(struct target *target, uint32_t offset)
{
	return tell(target, NULL, &(struct command){ .verb = WORD, .offset = offset }).value;
}

void target_set_word(struct target *target, uint32_t offset, uint64_t value)
{
	tell(target, NULL, &(struct command){ .verb = SET_WORD, .offset = offset, .value = value });
}

void target_for_ever(struct target *target, enum target_habit habit, uint32_t length)
{
	tell(target, NULL, &(struct command){ .verb = FOR_EVER, .habit = habit, .length = length });
}

void target_join(struct target *target)
{
	CHECK_CHILD(target->pid);
	close(target->socket);
}

void target_stop(struct target *target)
{
	int status;

	CHECK_EQ(kill(target->pid, SIGSTOP), 0);
	CHECK_EQ(waitpid(target->pid, &status, WUNTRACED), target->pid);
	CHECK(WIFSTOPPED(status));
}

void target_continue(struct target *target)
{
	CHECK_EQ(kill(target->pid, SIGCONT), 0);
}

void target_kill(struct target *target)
{
	int status;

	CHECK_EQ(kill(target->pid, SIGKILL), 0);
	CHECK_EQ(waitpid(target->pid, &status, 0), target->pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	close(target->socket);
}
