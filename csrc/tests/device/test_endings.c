/* SPDX-License-Identifier: BSD-3-Clause
 * The end of each object against every list whose elements name it.
 *
 *   list (csrc/engine)         names     taken off by                       tested in
 *   context->events            QP        destroy, after its last answers    here, queue/test_limits
 *                              SRQ, CQ   destroy, which awaits the acks     here, queue/test_limits
 *                              context   close (kept while used)            here
 *   engine->contexts, closed   context   close; the attachment's end        here
 *   engine->ack_pending,       QP        reset, destroy, error of its       queue/test_leaving,
 *     reading, waiting                   channel, new incarnation           test_death
 *   faults->retries, stuck     QP        reset, destroy, flush              fault/test_ends
 *   engine->open, channels,    channel   failure; freed once no QP has it   test_death
 *     channel->older
 *   channel->refusals, held    (numbers) failure, the attachment's end      fault/test_ends,
 *                                                                           here (ASan)
 *   channel->windows           (keys)    failure                            memory/test_protection
 *   comp channel->cqs,         CQ        destroy                            here, test_domains
 *     moderated
 *   CQ ring                    QP        reset, destroy: purged             queue/test_limits
 *   send queue: address handle (copy)    nothing: it is not named           here
 *   send queue: bind           (keys)    nothing: found again by its key    memory/test_windows
 *   windows of a region,       MR, QP    EBUSY; unbound by destroy          memory/test_windows*
 *     of a QP
 *   mcast->own                 QP        EBUSY until detached               queue/test_mcast
 *   xrc->srqs, QPs bound to    SRQ, CQ   destroy: unbound                   queue/test_xrc*
 *     one
 *   xrc->shadows               channel   failure, sweep                     queue/test_xrc*
 *   XRC handles                QP        counted; the last one frees it     here, queue/test_xrc*
 *   engine->pds, imported MRs  PD, MR    counted, `gone`; exporter's death unit: test_import
 *   injector->slot             (slot)    failure                            queue/test_fuzz_inject
 *   net->asleep, idle, room    channel   unlock; failure only marks it      netdev/test_pump
 *   all, in a child after fork all       nothing: no thread waits for it    here */
#include "engine/device/device.h"
#include "tests/support/target.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

static bool has_event(struct ibv_context *context)
{
	struct pollfd readable = { .fd = context->async_fd, .events = POLLIN };

	return poll(&readable, 1, 0) == 1;
}

/* No event of the context's list names *element*. */
static void check_no_event_names(struct ibv_context *ibv, const void *element)
{
	struct nupa_context *context = container_of(ibv, struct nupa_context, ibv.context);

	nupa_engine_lock(context->engine);
	for (struct nupa_list *at = context->events.next; at != &context->events; at = at->next)
		CHECK(container_of(at, struct nupa_event, link)->event.element.qp != element);
	nupa_engine_unlock(context->engine);
}

/* Takes memory of that size that was freed last, as another part of the program might. */
struct scribble {
	void *at[8];
};

static struct scribble scribble_over(size_t bytes)
{
	struct scribble scribble;

	for (int i = 0; i < 8; i++) {
		CHECK(scribble.at[i] = malloc(bytes));
		memset(scribble.at[i], 0x5a, bytes);
	}
	return scribble;
}

static void scribble_free(struct scribble *scribble)
{
	for (int i = 0; i < 8; i++)
		free(scribble->at[i]);
}

/* --- queue pairs --------------------------------------------------------------------- */

/* READs of the peer wait for room in our ring to it.  With their region gone they are refused while
 * the QP settles, which raises an event. */
TEST(a_queue_pair_leaves_no_event_that_was_raised_while_it_was_destroyed)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);
	struct target target;
	struct nupa_qp *qp;
	struct ibv_qp *gone;
	struct end *end;

	options.timeout = 0;
	target = target_fork(fabric);
	end = end_open(fabric, &options);
	target_open(&target, fabric, &options);
	target_connect(&target, &end->self);
	end_connect(end, &target.address);
	qp = container_of(end->qp, struct nupa_qp, ibv);
	target_for_ever(&target, TARGET_READS, 1u << 20);
	for (bool reads = false; !reads;) {
		nupa_engine_lock(qp->engine);
		reads = qp->jobs_head != qp->jobs_tail;
		if (reads) /* as if its ring were full for long: it stops in the middle of one */
			target_stop(&target);
		nupa_engine_unlock(qp->engine);
	}
	for (bool waits = false; !waits;) { /* it had asked for another one before */
		nupa_engine_lock(qp->engine);
		nupa_engine_progress(qp->engine);
		waits = qp->jobs_head != qp->jobs_tail && !nupa_list_empty(&qp->job_link);
		nupa_engine_unlock(qp->engine);
	}
	CHECK_EQ(nupa_dereg_mr(end->mr), 0);
	gone = end->qp;
	CHECK_EQ(nupa_destroy_qp(gone), 0);
	check_no_event_names(end->context, gone);
	target_kill(&target);
	end->mr = NULL;
	end->qp = NULL;
	end_close(end);
	nupa_fabric_put(fabric);
}

/* --- events that a program has got --------------------------------------------------- */

struct ending {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	uint32_t done;
};

static void *end_cq(void *arg)
{
	struct ending *ending = arg;

	CHECK_EQ(nupa_destroy_cq(ending->cq), 0);
	nupa_store_release(&ending->done, 1);
	return NULL;
}

TEST(a_completion_queue_waits_with_its_end_for_its_async_events_to_be_acknowledged)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct ibv_async_event event;
	struct ending ending = { 0 };
	struct end *a, *b;
	pthread_t thread;
	struct nupa_cq *cq;

	options.send_cqe = 1;
	pair_open(fabric, &options, &a, &b);
	for (uint64_t i = 0; i < 3; i++) /* the second finds no room */
		end_start(a, IBV_WR_RDMA_WRITE, i, 0, 8);
	do
		CHECK_EQ(nupa_get_async_event(a->context, &event), 0);
	while (event.event_type != IBV_EVENT_CQ_ERR &&
	       (nupa_ack_async_event(&event), true)); /* QP_FATAL may come first */
	CHECK(event.element.cq == a->send_cq);
	CHECK_EQ(nupa_destroy_qp(a->qp), 0);
	ending.cq = a->send_cq;
	cq = container_of(ending.cq, struct nupa_cq, ibv);
	nupa_engine_lock(nupa_engine_of(a->context));
	CHECK_EQ(cq->async_pending, 1);
	nupa_engine_unlock(nupa_engine_of(a->context));
	CHECK_EQ(pthread_create(&thread, NULL, end_cq, &ending), 0);
	/* It is off the list once its end has begun, and can only wait then. */
	for (bool begun = false; !begun;) {
		struct nupa_engine *engine = nupa_engine_of(a->context);

		begun = true;
		nupa_engine_lock(engine);
		for (struct nupa_list *at = engine->cqs.next; at != &engine->cqs; at = at->next)
			begun &= at != &cq->link;
		nupa_engine_unlock(engine);
	}
	CHECK(!nupa_load_acquire(&ending.done));
	nupa_ack_async_event(&event);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	a->qp = NULL;
	a->send_cq = NULL;
	fabric_close(fabric, a, b);
}

TEST(a_completion_queue_with_a_held_back_event_goes_with_it)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE,
					   .moderate = { .cq_count = 8, .cq_period = 1 } };
	struct nupa_engine *engine;
	struct ibv_cq *cq;
	struct end *a, *b;

	options.events = true;
	pair_open(fabric, &options, &a, &b);
	engine = nupa_engine_of(a->context);
	CHECK_EQ(nupa_modify_cq(a->send_cq, &attr), 0);
	CHECK_EQ(nupa_req_notify_cq(a->send_cq, 0), 0);
	end_start(a, IBV_WR_RDMA_WRITE, 1, 0, 8);
	CHECK_EQ(nupa_destroy_qp(a->qp), 0);
	cq = a->send_cq;
	CHECK_EQ(nupa_destroy_cq(cq), 0);
	nupa_engine_lock(engine);
	CHECK(nupa_list_empty(&engine->moderated));
	nupa_cq_run_timers(engine);
	nupa_engine_unlock(engine);
	a->qp = NULL;
	a->send_cq = NULL;
	fabric_close(fabric, a, b);
}

/* --- address handles ----------------------------------------------------------------- */

TEST(a_datagram_goes_where_its_address_handle_said_when_it_was_posted)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };
	struct scribble scribble;
	struct ibv_ah_attr attr_of_b;
	struct end *a, *b;

	options.type = IBV_QPT_UD;
	pair_open(fabric, &options, &a, &b);
	end_post_recv(b, 1, 0, 256);
	pattern_fill(a->memory, 64, 5);
	CHECK_EQ(nupa_modify_qp(a->qp, &attr, IBV_QP_STATE), 0);
	end_start(a, IBV_WR_SEND, 1, 0, 64); /* stays until the QP goes on */
	attr_of_b = container_of(a->ah, struct nupa_ah, ibv)->attr;
	CHECK_EQ(nupa_destroy_ah(a->ah), 0);
	scribble = scribble_over(sizeof(struct nupa_ah));
	attr.qp_state = IBV_QPS_RTS;
	CHECK_EQ(nupa_modify_qp(a->qp, &attr, IBV_QP_STATE), 0);
	cq_expect(a->send_cq, 1, IBV_WC_SUCCESS);
	cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
	CHECK_PATTERN(b->memory + 40, 64, 5);
	scribble_free(&scribble);
	CHECK(a->ah = nupa_create_ah(a->pd, &attr_of_b));
	fabric_close(fabric, a, b);
}

/* --- contexts ------------------------------------------------------------------------ */

TEST(objects_of_a_closed_context_raise_no_event)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct ibv_context *other;
	struct nupa_engine *engine;
	struct scribble scribble;
	struct end *a, *b;
	char why[256];

	options.srq_wr = 8;
	pair_open(fabric, &options, &a, &b);
	engine = nupa_engine_of(b->context);
	other = nupa_open_host(fabric, 1, NUPA_MOVER_NONE, why, sizeof(why));
	CHECK(other && nupa_engine_of(other) == engine);
	CHECK_EQ(nupa_close_device(b->context), 0);
	CHECK_EQ(engine->refs, 1);
	scribble = scribble_over(sizeof(struct nupa_context));
	/* An access error, and the SRQ is the others' now: two events, which no context can get. */
	nupa_engine_lock(engine);
	nupa_qp_error(container_of(b->qp, struct nupa_qp, ibv));
	nupa_event_raise_qp(container_of(b->qp, struct nupa_qp, ibv), IBV_EVENT_QP_ACCESS_ERR);
	nupa_engine_unlock(engine);
	CHECK(!has_event(other));
	/* Its objects are as good as before. */
	b->context = NULL;
	end_close(b);
	scribble_free(&scribble);
	CHECK_EQ(nupa_close_device(other), 0);
	end_close(a);
	nupa_fabric_put(fabric);
}

/* --- XRC ----------------------------------------------------------------------------- */

static struct ibv_xrcd *open_domain(struct ibv_context *context, int fd)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd,
		.oflags = O_CREAT,
	};
	struct ibv_xrcd *xrcd = nupa_open_xrcd(context, &attr);

	CHECK(xrcd);
	return xrcd;
}

static void *end_qp(void *arg)
{
	struct ending *ending = arg;

	CHECK_EQ(nupa_destroy_qp(ending->qp), 0);
	nupa_store_release(&ending->done, 1);
	return NULL;
}

/* Its events are acknowledged in its own context, even if another one closes the last handle. */
TEST(the_own_handle_of_an_xrc_queue_pair_ends_with_its_events)
{
	struct nupa_fabric *fabric = test_fabric();
	char why[256];
	struct ibv_context *own = nupa_open_host(fabric, 0, NUPA_MOVER_NONE, why, sizeof(why));
	struct ibv_context *other = nupa_open_host(fabric, 0, NUPA_MOVER_NONE, why, sizeof(why));
	int fd = memfd_create("xrcd", MFD_CLOEXEC);
	struct ibv_xrcd *xrcd = open_domain(own, fd), *xrcd_too = open_domain(other, fd);
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = xrcd,
	};
	struct ending ending = { .qp = nupa_create_qp_ex(own, &init) };
	struct ibv_qp_open_attr open = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = ending.qp->qp_num,
		.xrcd = xrcd_too,
		.qp_type = IBV_QPT_XRC_RECV,
	};
	struct ibv_qp *handle = nupa_open_qp(other, &open);
	struct nupa_qp *qp = container_of(ending.qp, struct nupa_qp, ibv);
	struct ibv_async_event event;
	pthread_t thread;

	CHECK(handle);
	nupa_engine_lock(qp->engine);
	nupa_event_raise_qp(qp, IBV_EVENT_COMM_EST);
	nupa_event_raise_qp(qp, IBV_EVENT_COMM_EST);
	nupa_engine_unlock(qp->engine);
	CHECK_EQ(nupa_get_async_event(own, &event), 0);
	CHECK_EQ(pthread_create(&thread, NULL, end_qp, &ending), 0);
	for (bool begun = false; !begun;) {
		nupa_engine_lock(qp->engine);
		begun = qp->orphan;
		nupa_engine_unlock(qp->engine);
	}
	check_no_event_names(own, &qp->ibv);
	CHECK_EQ(nupa_destroy_qp(handle), 0); /* the last one, but its own */
	CHECK(!nupa_load_acquire(&ending.done));
	nupa_ack_async_event(&event);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(nupa_close_xrcd(xrcd_too), 0);
	CHECK_EQ(nupa_close_xrcd(xrcd), 0);
	CHECK_EQ(nupa_close_device(other), 0);
	CHECK_EQ(nupa_close_device(own), 0);
	close(fd);
	nupa_fabric_put(fabric);
}

/* --- fork ---------------------------------------------------------------------------- */

/* The parent has events that it will acknowledge, and the mutex that this takes. */
TEST(a_child_closes_what_its_parent_has_without_waiting)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct ibv_async_event event;
	struct nupa_context *context;
	struct ibv_cq *cq;
	struct end *a, *b;
	void *cq_context;
	pid_t pid;

	options.events = true;
	pair_open(fabric, &options, &a, &b);
	context = container_of(a->context, struct nupa_context, ibv.context);
	CHECK_EQ(nupa_req_notify_cq(a->send_cq, 0), 0);
	end_start(a, IBV_WR_RDMA_WRITE, 1, 0, 8);
	CHECK_EQ(nupa_get_cq_event(a->channel, &cq, &cq_context), 0);
	nupa_engine_lock(context->engine);
	nupa_event_raise_qp(container_of(a->qp, struct nupa_qp, ibv), IBV_EVENT_COMM_EST);
	nupa_engine_unlock(context->engine);
	CHECK_EQ(nupa_get_async_event(a->context, &event), 0);
	pthread_mutex_lock(&context->events_mutex);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		alarm(60);
		CHECK_EQ(nupa_destroy_qp(a->qp), 0);
		CHECK_EQ(nupa_destroy_cq(a->send_cq), 0);
		_exit(0);
	}
	pthread_mutex_unlock(&context->events_mutex);
	CHECK_CHILD(pid);
	nupa_ack_async_event(&event);
	nupa_ack_cq_events(cq, 1);
	fabric_close(fabric, a, b);
}

/* The thread that forks holds the locks of its attachments, and the child makes these anew. */
TEST(a_child_holds_no_lock_of_its_parent)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end_options options = end_options_of(NUPA_MOVER_NONE);
	struct end *end = end_open(fabric, &options);
	struct nupa_engine *engine = nupa_engine_of(end->context);
	const uint32_t often = 1000000; /* more than earns a bias that the port thread took */
	pid_t pid;

	for (uint32_t i = 0; i < often && engine->lock.enough && !engine->lock.biased; i++) {
		nupa_engine_lock(engine);
		nupa_engine_unlock(engine);
	}
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		alarm(60);
		CHECK(!nupa_thread_self || (!nupa_thread_self->holds && !nupa_thread_self->nested));
		for (uint32_t i = 0; i < often && engine->lock.enough && !engine->lock.biased;
		     i++) {
			nupa_engine_lock(engine);
			nupa_engine_unlock(engine);
		}
		CHECK(!engine->lock.enough || engine->lock.biased);
		_exit(0);
	}
	CHECK_CHILD(pid);
	end_close(end);
	nupa_fabric_put(fabric);
}
