/* SPDX-License-Identifier: BSD-3-Clause
 * Asynchronous events, in a thread of their own as in most programs.  They give the time when a QP
 * was told that its peer is gone, however busy the main thread is.  Its completions are there by
 * then. */
#include "soak.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>

#define FATALS 64u
#define LOOK_MS 50

static pthread_t thread;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool stop;
static struct {
	uint32_t qpn;
	uint64_t ns;
} fatals[FATALS];
static uint32_t n_fatals;

static void take(void)
{
	struct ibv_async_event event;

	while (ibv_get_async_event(worker.context, &event) == 0) {
		if (event.event_type == IBV_EVENT_QP_FATAL) {
			pthread_mutex_lock(&mutex);
			fatals[n_fatals % FATALS].ns = clock_ns();
			fatals[n_fatals % FATALS].qpn = event.element.qp->qp_num;
			__atomic_store_n(&n_fatals, n_fatals + 1, __ATOMIC_RELEASE);
			pthread_mutex_unlock(&mutex);
		}
		ibv_ack_async_event(&event);
	}
}

static void *run(void *argument)
{
	struct pollfd fd = { worker.context->async_fd, POLLIN, 0 };

	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
		if (poll(&fd, 1, LOOK_MS) > 0)
			take();
	return argument;
}

void events_open(void)
{
	if (pthread_create(&thread, NULL, run, NULL))
		give_up("no thread for events");
}

void events_close(void)
{
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
}

uint64_t events_fatal_ns(uint32_t qpn, uint64_t since_ns)
{
	uint64_t ns = 0;

	pthread_mutex_lock(&mutex);
	for (uint32_t i = 0; i < FATALS; i++)
		if (fatals[i].qpn == qpn && fatals[i].ns >= since_ns)
			ns = fatals[i].ns;
	pthread_mutex_unlock(&mutex);
	return ns;
}

uint32_t events_count(void)
{
	return __atomic_load_n(&n_fatals, __ATOMIC_ACQUIRE);
}
