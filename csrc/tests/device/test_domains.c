/* SPDX-License-Identifier: BSD-3-Clause
 * Parent and thread domains: where queues lie, and what is refused. */
#include "tests/support/end.h"
#include "engine/device/device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct ledger {
	uint32_t allocated, freed;
	uint64_t types; /* a bit for each resource type */
	struct ibv_pd *pd;
	bool refuse, leave_it;
};

static void *ledger_alloc(struct ibv_pd *pd, void *context, size_t size, size_t alignment,
			  uint64_t type)
{
	struct ledger *ledger = context;
	void *at = NULL;

	CHECK(pd == ledger->pd);
	if (ledger->refuse)
		return NULL;
	if (ledger->leave_it)
		return (void *)-1;
	CHECK_EQ(posix_memalign(&at, alignment, size), 0);
	memset(at, 0, size);
	ledger->allocated++;
	ledger->types |= UINT64_C(1) << type;
	return at;
}

static void ledger_free(struct ibv_pd *pd, void *context, void *at, uint64_t type)
{
	struct ledger *ledger = context;

	CHECK(pd == ledger->pd);
	CHECK(ledger->types >> type & 1);
	ledger->freed++;
	free(at);
}

static struct ibv_pd *parent_of(struct end *end, struct ibv_td *td, struct ledger *ledger)
{
	struct ibv_parent_domain_init_attr attr = {
		.pd = end->pd,
		.td = td,
		.comp_mask = ledger ? IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
					  IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT
				    : 0,
		.alloc = ledger_alloc,
		.free = ledger_free,
		.pd_context = ledger,
	};
	struct ibv_pd *pd = nupa_alloc_parent_domain(end->context, &attr);

	if (ledger)
		ledger->pd = pd;
	return pd;
}

/* The end's QP is made anew, from *pd*. */
static void move_to(struct end *end, struct ibv_pd *pd)
{
	struct ibv_pd *own = end->pd;

	CHECK_EQ(nupa_destroy_qp(end->qp), 0);
	end->pd = pd;
	end->qp = end_make_qp(end);
	end->self.qpn = end->qp->qp_num;
	end->pd = own;
}

static void exchange(struct end *a, struct end *b)
{
	end_connect(a, &b->self);
	end_connect(b, &a->self);
	for (uint32_t i = 0; i < 100; i++) {
		end_post_recv(b, i, 4096, 4096);
		pattern_fill(a->memory, 3000, i);
		end_start(a, IBV_WR_SEND, i, 0, 3000);
		cq_expect(a->send_cq, i, IBV_WC_SUCCESS);
		cq_expect(b->recv_cq, i, IBV_WC_SUCCESS);
		CHECK_PATTERN(b->memory + 4096, 3000, i);
	}
}

TEST(queues_of_a_parent_domain_are_in_its_memory_and_reach_regions_of_its_pd)
{
	struct nupa_fabric *fabric = test_fabric();
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq_attr srq_attr = { .max_wr = 64 };
	struct ledger ledger = { 0 };
	struct end *a = end_open(fabric, &end_defaults), *b = end_open(fabric, &end_defaults);
	struct ibv_pd *parent = parent_of(a, NULL, &ledger);
	struct ibv_srq *srq;

	CHECK(parent);
	move_to(a, parent);
	CHECK_EQ(ledger.allocated, 2);
	exchange(a, b);
	CHECK(srq = nupa_create_srq(parent, &srq_init));
	CHECK_EQ(ledger.allocated, 3);
	CHECK_EQ(nupa_modify_srq(srq, &srq_attr, IBV_SRQ_MAX_WR), 0);
	CHECK_EQ(ledger.allocated, 4);
	CHECK_EQ(ledger.freed, 1);
	CHECK_EQ(nupa_dealloc_pd(parent), EBUSY);
	CHECK_EQ(nupa_destroy_srq(srq), 0);
	move_to(a, a->pd);
	CHECK_EQ(ledger.freed, 4);
	CHECK_EQ(ledger.types, 1u << NUPA_BUFFER_SQ | 1u << NUPA_BUFFER_RQ | 1u << NUPA_BUFFER_SRQ);
	CHECK_EQ(nupa_dealloc_pd(a->pd), EBUSY);
	CHECK_EQ(nupa_dealloc_pd(parent), 0);
	fabric_close(fabric, a, b);
}

TEST(an_allocator_may_refuse_or_leave_it_to_us)
{
	struct nupa_fabric *fabric = test_fabric();
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ledger ledger = { .leave_it = true };
	struct end *a = end_open(fabric, &end_defaults), *b = end_open(fabric, &end_defaults);
	struct ibv_pd *parent = parent_of(a, NULL, &ledger), *plain = parent_of(b, NULL, NULL);

	CHECK(parent && plain);
	move_to(a, parent);
	move_to(b, plain);
	exchange(a, b);
	ledger.refuse = true;
	init.send_cq = a->send_cq;
	init.recv_cq = a->recv_cq;
	CHECK(!nupa_create_qp(parent, &init));
	CHECK_EQ(errno, ENOMEM);
	move_to(a, a->pd);
	move_to(b, b->pd);
	CHECK_EQ(ledger.allocated, 0);
	CHECK_EQ(ledger.freed, 0);
	CHECK_EQ(nupa_dealloc_pd(parent), 0);
	CHECK_EQ(nupa_dealloc_pd(plain), 0);
	fabric_close(fabric, a, b);
}

TEST(an_extended_cq_lies_in_its_parent_domain)
{
	struct nupa_fabric *fabric = test_fabric();
	struct ledger ledger = { 0 };
	struct end *end = end_open(fabric, &end_defaults);
	struct ibv_pd *parent = parent_of(end, NULL, &ledger);
	struct ibv_cq_init_attr_ex init = { .cqe = 100,
					    .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
					    .parent_domain = parent };
	struct ibv_cq_ex *cq;

	CHECK(cq = nupa_create_cq_ex(end->context, &init));
	CHECK_EQ(ledger.allocated, 1);
	CHECK_EQ(nupa_dealloc_pd(parent), EBUSY);
	CHECK_EQ(nupa_resize_cq(ibv_cq_ex_to_cq(cq), 1000), 0);
	CHECK_EQ(ledger.allocated, 2);
	CHECK_EQ(nupa_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	CHECK_EQ(ledger.freed, 2);
	CHECK_EQ(nupa_dealloc_pd(parent), 0);
	init.parent_domain = end->pd; /* which is none */
	CHECK(!nupa_create_cq_ex(end->context, &init));
	CHECK_EQ(errno, EINVAL);
	end_close(end);
	nupa_fabric_put(fabric);
}

TEST(malformed_parent_domains_are_refused)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *end = end_open(fabric, &end_defaults), *other;
	struct ibv_td_init_attr td_attr = { .comp_mask = 1 };
	struct ibv_parent_domain_init_attr attr = { 0 };
	struct ibv_td *td;
	struct ibv_pd *parent, *hinted;

	other = end_open(fabric, &end_defaults);
	CHECK(!nupa_alloc_td(end->context, &td_attr));
	CHECK_EQ(errno, EINVAL);
	td_attr.comp_mask = 0;
	CHECK(td = nupa_alloc_td(end->context, &td_attr));
	CHECK(parent = parent_of(end, td, NULL));
	CHECK_EQ(nupa_dealloc_td(td), EBUSY);
	CHECK(!nupa_alloc_parent_domain(end->context, &attr)); /* without a PD */
	CHECK_EQ(errno, EINVAL);
	attr.pd = parent;
	CHECK(!nupa_alloc_parent_domain(end->context, &attr));
	attr.pd = other->pd;
	CHECK(!nupa_alloc_parent_domain(end->context, &attr));
	attr.pd = end->pd;
	attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC << 1;
	CHECK(!nupa_alloc_parent_domain(end->context, &attr));
	attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;
	CHECK(hinted = nupa_alloc_parent_domain(end->context, &attr));
	CHECK_EQ(nupa_dealloc_pd(hinted), 0);
	attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS; /* and none given */
	CHECK(!nupa_alloc_parent_domain(end->context, &attr));
	CHECK_EQ(nupa_dealloc_pd(parent), 0);
	CHECK_EQ(nupa_dealloc_td(td), 0);
	end_close(end);
	end_close(other);
	nupa_fabric_put(fabric);
}

TEST(a_datagram_queue_pair_of_a_parent_domain_takes_handles_of_its_pd)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_defaults;
	struct end *a, *b;
	struct ibv_pd *parent;

	options.type = IBV_QPT_UD;
	a = end_open(fabric, &options);
	b = end_open(fabric, &options);
	CHECK(parent = parent_of(a, NULL, NULL));
	move_to(a, parent);
	end_connect(a, &b->self);
	end_connect(b, &a->self);
	end_post_recv(b, 1, 0, 4096);
	end_start(a, IBV_WR_SEND, 1, 0, 8);
	cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	move_to(a, a->pd);
	CHECK_EQ(nupa_dealloc_pd(parent), 0);
	fabric_close(fabric, a, b);
}
