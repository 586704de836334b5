// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Asynchronous events for kernel users, in the place of engine/queue/event.c.  The engine raises
 * them with its lock; handlers take it again, so they run afterwards.
 */
#include "kernel/host/host.h"
#include "engine/queue/queue.h"

#include <linux/slab.h>
#include <linux/workqueue.h>

const struct nupa_kernel_user *nupa_kernel_user;

static void deliver(struct work_struct *work);

static struct {
	spinlock_t lock;
	struct nupa_list waiting; /* struct nupa_event.link */
} events = {
	.lock = __SPIN_LOCK_UNLOCKED(events.lock),
	.waiting = { &events.waiting, &events.waiting },
};

static DECLARE_WORK(delivery, deliver);

static struct nupa_event *take_event(void)
{
	struct nupa_list *link;
	unsigned long flags;

	spin_lock_irqsave(&events.lock, flags);
	link = nupa_list_pop(&events.waiting);
	spin_unlock_irqrestore(&events.lock, flags);
	return link ? container_of(link, struct nupa_event, link) : NULL;
}

static void tell_user(const struct ibv_async_event *event)
{
	const struct nupa_kernel_user *user = nupa_load_acquire(&nupa_kernel_user);

	if (user)
		user->event(event);
}

static void deliver(struct work_struct *work)
{
	for (struct nupa_event *item; (item = take_event());) {
		tell_user(&item->event);
		kfree(item);
	}
}

/* --- of the port ------------------------------------------------------------------------- */

/* Words of the segment cause them, which others may write as fast as they can (I5), and each costs
 * the kernel's users some work.  So one of each type waits at most, and the latest comes last. */
#define PORT_MS 10

static void deliver_port(struct work_struct *work);

static uint32_t port_waiting; /* bits of types; with events.lock, as the next is */
static enum ibv_event_type port_latest;
static DECLARE_DELAYED_WORK(port_delivery, deliver_port);

static bool is_of_port(enum ibv_event_type type)
{
	return type == IBV_EVENT_PORT_ACTIVE || type == IBV_EVENT_PORT_ERR ||
	       type == IBV_EVENT_PKEY_CHANGE;
}

static void deliver_port(struct work_struct *work)
{
	struct ibv_async_event event = { .element.port_num = 1 };
	enum ibv_event_type latest;
	unsigned long flags, waiting;
	uint32_t type;

	spin_lock_irqsave(&events.lock, flags);
	latest = port_latest;
	waiting = port_waiting & ~BIT(latest);
	port_waiting = 0;
	spin_unlock_irqrestore(&events.lock, flags);
	for_each_set_bit(type, &waiting, BITS_PER_TYPE(port_waiting))
	{
		event.event_type = type;
		tell_user(&event);
	}
	event.event_type = latest;
	tell_user(&event);
}

static void raise_port(enum ibv_event_type type)
{
	unsigned long flags;

	spin_lock_irqsave(&events.lock, flags);
	port_waiting |= BIT(type);
	port_latest = type;
	spin_unlock_irqrestore(&events.lock, flags);
	schedule_delayed_work(&port_delivery, msecs_to_jiffies(PORT_MS));
}

/* --- all ------------------------------------------------------------------------------- */

void nupa_kernel_events_flush(void)
{
	flush_work(&delivery);
	flush_delayed_work(&port_delivery);
	nupa_kernel_completions_flush();
}

void nupa_event_raise(struct nupa_context *context, const struct ibv_async_event *event)
{
	struct nupa_event *item;
	unsigned long flags;

	if (context->closed)
		return;
	if (is_of_port(event->event_type)) {
		raise_port(event->event_type);
		return;
	}
	item = kmalloc(sizeof(*item), GFP_ATOMIC | __GFP_NOWARN);
	if (!item)
		return;
	item->event = *event;
	spin_lock_irqsave(&events.lock, flags);
	nupa_list_add(&events.waiting, &item->link);
	spin_unlock_irqrestore(&events.lock, flags);
	schedule_work(&delivery);
}

/* Of an object that goes: with the engine's lock. */
void nupa_event_drop(struct nupa_context *context, void *element)
{
	struct nupa_list *at;
	unsigned long flags;

	spin_lock_irqsave(&events.lock, flags);
	at = events.waiting.next;
	while (at != &events.waiting) {
		struct nupa_event *item = container_of(at, struct nupa_event, link);

		at = at->next;
		if ((void *)item->event.element.qp == element) {
			nupa_list_del(&item->link);
			kfree(item);
		}
	}
	spin_unlock_irqrestore(&events.lock, flags);
}

/* One that is being delivered has its object until the handler returns. */
void nupa_event_wait_acked(struct nupa_context *context, const uint32_t *pending)
{
	if (current_work() != &delivery)
		flush_work(&delivery);
}
