// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Completions for kernel users, in the place of engine/queue/comp_channel.c and parts of
 * engine/device/poll.c.  A queue that was armed is told of when the turn of the engine in which it
 * got a completion has ended, or in an interrupt if no turn runs.
 *
 * The port's thread and the watch run the engine, so polling and arming leave acknowledgements to
 * them: most go with the next request or response instead.
 */
#include "kernel/host/host.h"
#include "engine/attachment/attachment.h"
#include "engine/device/device.h"
#include "engine/queue/queue.h"

#include <linux/irq_work.h>

bool nupa_kernel_polled;

static void tell(struct irq_work *work);

static struct {
	spinlock_t telling;   /* handlers run, above the engine's */
	spinlock_t lock;      /* of the list, below the engine's */
	struct nupa_list cqs; /* struct nupa_cq.event_link */
	bool held;            /* somebody will tell */
	struct irq_work tell;
	struct nupa_comp_channel channel;
} completions = {
	.telling = __SPIN_LOCK_UNLOCKED(completions.telling),
	.lock = __SPIN_LOCK_UNLOCKED(completions.lock),
	.cqs = { &completions.cqs, &completions.cqs },
	.tell = IRQ_WORK_INIT_HARD(tell),
};

static struct nupa_cq *take_cq(void)
{
	struct nupa_list *link;

	spin_lock(&completions.lock);
	completions.held = false;
	link = nupa_list_pop(&completions.cqs);
	spin_unlock(&completions.lock);
	return link ? container_of(link, struct nupa_cq, event_link) : NULL;
}

/* Handlers may take the engine's lock. */
void nupa_kernel_completions_tell(void)
{
	const struct nupa_kernel_user *user;
	unsigned long flags;

	spin_lock_irqsave(&completions.telling, flags);
	user = nupa_load_acquire(&nupa_kernel_user);
	for (struct nupa_cq *cq; (cq = take_cq());)
		if (user)
			user->completion(cq->ibv.cq_context);
	spin_unlock_irqrestore(&completions.telling, flags);
}

static void tell(struct irq_work *work)
{
	nupa_kernel_completions_tell();
}

void nupa_kernel_completions_hold(void)
{
	unsigned long flags;

	spin_lock_irqsave(&completions.lock, flags);
	completions.held = true;
	spin_unlock_irqrestore(&completions.lock, flags);
}

struct ibv_comp_channel *nupa_kernel_channel(struct ibv_context *context)
{
	completions.channel.ibv.context = context;
	return &completions.channel.ibv;
}

void nupa_cq_raise(struct nupa_cq *cq)
{
	unsigned long flags;
	bool held;

	if (cq->arm == NUPA_ARM_NONE)
		return;
	cq->arm = NUPA_ARM_NONE;
	nupa_store_relaxed(&nupa_kernel_polled, false);
	spin_lock_irqsave(&completions.lock, flags);
	if (nupa_list_empty(&cq->event_link))
		nupa_list_add(&completions.cqs, &cq->event_link);
	held = completions.held;
	spin_unlock_irqrestore(&completions.lock, flags);
	if (!held)
		irq_work_queue(&completions.tell);
}

/* Handlers that ran have returned. */
static void wait_told(void)
{
	unsigned long flags;

	spin_lock_irqsave(&completions.telling, flags);
	spin_unlock_irqrestore(&completions.telling, flags);
}

void nupa_kernel_cq_forget(struct ibv_cq *cq)
{
	unsigned long flags;

	spin_lock_irqsave(&completions.lock, flags);
	nupa_list_del(&container_of(cq, struct nupa_cq, ibv)->event_link);
	spin_unlock_irqrestore(&completions.lock, flags);
	wait_told();
}

void nupa_kernel_completions_flush(void)
{
	irq_work_sync(&completions.tell);
	wait_told();
}

/* With the lock of the engine. */
static struct nupa_engine *lock_engine(struct ibv_cq *ibv)
{
	struct nupa_engine *engine = nupa_engine_of(ibv->context);

	nupa_engine_lock(engine);
	if (nupa_load_acquire(&nupa_kernel_halted))
		nupa_kernel_halt(engine);
	return engine;
}

int nupa_kernel_poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
	struct nupa_cq *cq = container_of(ibv, struct nupa_cq, ibv);
	struct nupa_engine *engine = lock_engine(ibv);

	if (cq->head == cq->tail && !nupa_load_relaxed(&nupa_kernel_halted) &&
	    nupa_engine_rings_ready(engine))
		nupa_engine_progress(engine);
	n = nupa_cq_take(cq, n, wc);
	if (!n && cq->overrun)
		n = -1;
	nupa_engine_unlock(engine);
	return n;
}

void nupa_kernel_arm_cq(struct ibv_cq *ibv, bool solicited_only)
{
	struct nupa_engine *engine = lock_engine(ibv);

	nupa_cq_arm(engine, container_of(ibv, struct nupa_cq, ibv), solicited_only);
	nupa_engine_unlock(engine);
}
