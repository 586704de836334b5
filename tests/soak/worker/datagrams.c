/* SPDX-License-Identifier: BSD-3-Clause
 * Datagrams: each says in its head what its bytes must be.  They may be lost. */
#include "soak.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define QKEY 0x11223344u
#define PEERS 32u
#define BUFFERS 32u
#define BUFFER_BYTES 4096u
#define GRH_BYTES 40u
#define SENDS 8u
#define OWN_GID_INDEX 1
/* On a network nothing holds senders of datagrams back, and those of others get lost with them. */
#define NETWORK_GAP_NS UINT64_C(1000000)
#define TO_GROUP 16u /* one datagram of so many goes to all */

struct head {
	uint64_t seed;
	uint64_t check;
	uint32_t bytes; /* behind the head */
	uint32_t reserved;
};

static struct ibv_qp *qp;
static struct ibv_mr *mr;
static uint8_t *memory; /* BUFFERS to receive, SENDS to send */
static uint64_t state;
static uint32_t sends_free; /* a bit each */
static struct {
	uint32_t qpn;
	struct ibv_ah *ah;
} peers[PEERS];
static const union ibv_gid group = { .raw = { 0xff, 0x0e, [15] = 0x17 } };
static struct ibv_ah *group_ah;

static void post_recv(uint32_t buffer)
{
	struct ibv_sge sge = { (uintptr_t)memory + buffer * BUFFER_BYTES, BUFFER_BYTES, mr->lkey };
	struct ibv_recv_wr *bad,
	    wr = { .wr_id = WR_ID(WR_DATAGRAM_RECV, 0, buffer), .sg_list = &sge, .num_sge = 1 };

	if (ibv_post_recv(qp, &wr, &bad))
		give_up("ibv_post_recv of the datagram QP failed");
}

static void to_rts(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };

	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY))
		give_up("the datagram QP does not become INIT");
	attr.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
		give_up("the datagram QP does not become RTR");
	attr.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN))
		give_up("the datagram QP does not become RTS");
}

static struct ibv_ah *make_ah(const union ibv_gid *gid, uint8_t gid_index)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .dgid = *gid, .sgid_index = gid_index, .hop_limit = 64 },
	};
	struct ibv_ah *ah = ibv_create_ah(worker.pd, &attr);

	must(ah || worker.network, "ibv_create_ah");
	return ah;
}

void datagrams_open(uint64_t seed)
{
	struct ibv_qp_init_attr init = {
		.send_cq = worker.cq,
		.recv_cq = worker.cq,
		.cap = { SENDS, BUFFERS, 1, 1, 0 },
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
	};

	state = seed;
	sends_free = (1u << SENDS) - 1;
	memory = calloc(BUFFERS + SENDS, BUFFER_BYTES);
	mr = memory ? ibv_reg_mr(worker.pd, memory, (BUFFERS + SENDS) * (size_t)BUFFER_BYTES,
				 IBV_ACCESS_LOCAL_WRITE)
		    : NULL;
	qp = mr ? ibv_create_qp(worker.pd, &init) : NULL;
	if (!qp)
		give_up("no datagram QP: %s", strerror(errno));
	to_rts();
	for (uint32_t i = 0; i < BUFFERS; i++)
		post_recv(i);
	group_ah = make_ah(&group, OWN_GID_INDEX); /* its members are on this machine */
	must(group_ah, "ibv_create_ah of the group");
	if (ibv_attach_mcast(qp, &group, 0))
		give_up("ibv_attach_mcast: %s", strerror(errno));
	tell("datagrams %u", qp->qp_num);
}

void datagrams_meet(uint32_t peer, uint32_t qpn, const union ibv_gid *gid)
{
	peer %= PEERS;
	if (peers[peer].ah)
		ibv_destroy_ah(peers[peer].ah);
	peers[peer].ah = make_ah(gid, worker.gid_index); /* NULL: the way there is gone */
	peers[peer].qpn = qpn;
}

static uint32_t message_max_bytes(void)
{
	/* A port whose wire has just died does not know the MTU of the next one. */
	uint32_t mtu_bytes = worker.mtu_bytes ? worker.mtu_bytes : 128u << mtu_now();

	return mtu_bytes < BUFFER_BYTES - GRH_BYTES ? mtu_bytes : BUFFER_BYTES - GRH_BYTES;
}

static bool is_early(void)
{
	static uint64_t last_ns;
	uint64_t now_ns = clock_ns();

	if (worker.network && now_ns - last_ns < NETWORK_GAP_NS)
		return true;
	last_ns = now_ns;
	return false;
}

void datagrams_send(void)
{
	uint32_t buffer = (uint32_t)__builtin_ctz(sends_free | 1u << 31);
	uint32_t peer = (uint32_t)(state % PEERS);
	uint8_t *at = memory + (BUFFERS + buffer) * (size_t)BUFFER_BYTES;
	struct head head = { .seed = state };
	struct ibv_sge sge = { .addr = (uintptr_t)at, .lkey = mr->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = WR_ID(WR_DATAGRAM, 0, buffer),
					.sg_list = &sge,
					.num_sge = 1,
					.opcode = IBV_WR_SEND };

	bool to_group = state / PEERS % TO_GROUP == 0;

	if (is_early())
		return;
	state = mix(state, 1);
	if (buffer >= SENDS || !peers[peer].ah)
		return;
	head.check = mix(head.seed, 2);
	head.bytes = (uint32_t)(head.check % (message_max_bytes() - sizeof(head) + 1));
	memcpy(at, &head, sizeof(head));
	pattern_fill(at + sizeof(head), head.bytes, head.seed, 0);
	sge.length = (uint32_t)sizeof(head) + head.bytes;
	wr.wr.ud.ah = to_group ? group_ah : peers[peer].ah;
	wr.wr.ud.remote_qpn = to_group ? 0xffffff : peers[peer].qpn;
	wr.wr.ud.remote_qkey = QKEY;
	sends_free &= ~(1u << buffer);
	if (ibv_post_send(qp, &wr, &bad))
		give_up("ibv_post_send of a datagram failed");
	board->operations++;
}

static void check(const struct ibv_wc *wc, const uint8_t *at)
{
	struct head head;

	memcpy(&head, at, sizeof(head));
	if (wc->byte_len < GRH_BYTES + sizeof(head) || head.check != mix(head.seed, 2) ||
	    wc->byte_len != GRH_BYTES + sizeof(head) + head.bytes ||
	    pattern_match(at + sizeof(head), head.bytes, head.seed, 0) != head.bytes)
		wrong(
		    "a datagram of %u bytes from QP 0x%x is not what was sent: seed 0x%llx, check "
		    "%s, %u bytes, %zu of them good",
		    wc->byte_len, wc->src_qp, (unsigned long long)head.seed,
		    head.check == mix(head.seed, 2) ? "good" : "bad", head.bytes,
		    pattern_match(at + sizeof(head),
				  head.bytes < BUFFER_BYTES ? head.bytes % 3900 : 0, head.seed, 0));
	board->datagrams++;
	board->bytes += wc->byte_len;
}

void datagrams_complete(const struct ibv_wc *wc)
{
	uint32_t buffer = (uint32_t)wc->wr_id;

	if (wc->status != IBV_WC_SUCCESS) {
		wrong("a datagram ended with %s", ibv_wc_status_str(wc->status));
		return;
	}
	if (wc->wr_id >> 56 == WR_DATAGRAM) {
		sends_free |= 1u << buffer;
		return;
	}
	check(wc, memory + buffer * (size_t)BUFFER_BYTES + GRH_BYTES);
	post_recv(buffer);
}

void datagrams_close(void)
{
	if (ibv_detach_mcast(qp, &group, 0) || ibv_destroy_ah(group_ah))
		wrong("the datagram QP did not leave its group");
	if (ibv_destroy_qp(qp) || ibv_dereg_mr(mr))
		wrong("the datagram QP or its region did not go");
	for (uint32_t i = 0; i < PEERS; i++)
		if (peers[i].ah)
			ibv_destroy_ah(peers[i].ah);
	free(memory);
}
