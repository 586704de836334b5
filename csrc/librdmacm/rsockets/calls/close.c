/* SPDX-License-Identifier: BSD-3-Clause
 * Ends: shutdown, close, and a program's exit.  All data sent arrives, then the end of the stream.
 */
#include "librdmacm/rsockets/internal.h"

#include <errno.h>

/* How long a close waits for a peer that reads nothing, unless SO_LINGER has another value, before
 * it leaves the rest to the service thread. */
#define CLOSE_NS (INT64_C(50) * RS_NS_PER_MS)
#define SHUTDOWN_NS (INT64_C(5000) * RS_NS_PER_MS)
#define LEAVE_NS (INT64_C(1000) * RS_NS_PER_MS) /* a program ends this much later at most */

static bool is_connected(struct rsocket *rs)
{
	int state = nupa_load_acquire(&rs->state);

	return state == RS_CONNECTED || state == RS_ACCEPTED;
}

static bool is_over(struct rsocket *rs)
{
	return nupa_load_acquire(&rs->broken) || nupa_load_acquire(&rs->peer_gone);
}

static bool may_post_end(struct rsocket *rs)
{
	return is_over(rs) || nupa_load_acquire(&rs->control_free) > 0;
}

static bool end_arrived(struct rsocket *rs)
{
	return is_over(rs) || nupa_load_acquire(&rs->end_sent);
}

/* Tells the peer that the stream ends behind all data sent.  Under tx.lock. */
static void post_end(struct rsocket *rs)
{
	if (!rs->end_posted && !is_over(rs) && rs_post_control(rs, RS_WIRE_END, 0, RS_WR_END))
		rs->end_posted = 1;
}

static int end_stream(struct rsocket *rs, int64_t deadline_ns)
{
	for (;;) {
		bool done;

		pthread_mutex_lock(&rs->tx.lock);
		post_end(rs);
		done = rs->end_posted || is_over(rs);
		pthread_mutex_unlock(&rs->tx.lock);
		if (done)
			return 0;
		if (rs_wait(rs, may_post_end, deadline_ns))
			return -1;
	}
}

/* Whether the peer has all of it, or never will. */
static bool finish(struct rsocket *rs, int64_t wait_ns)
{
	int64_t deadline_ns = rs_deadline(wait_ns);

	if (wait_ns && end_stream(rs, deadline_ns) == 0 && !end_arrived(rs))
		rs_wait(rs, end_arrived, deadline_ns);
	return end_arrived(rs);
}

static void let_go(struct rsocket *rs)
{
	if (nupa_exchange_seq(&rs->finished, 1))
		return;
	rs_unserve(rs);
	if (is_connected(rs) && !rs->datagrams)
		rdma_disconnect(rs->id);
	rs_hide(rs);
	rs_put(rs);
}

/* In the service thread: a stream that was closed while the peer read nothing. */
static void go_on_closing(struct rsocket *rs)
{
	rs_take_events(rs);
	rs_arm(rs);
	rs_progress(rs);
	pthread_mutex_lock(&rs->tx.lock);
	post_end(rs);
	pthread_mutex_unlock(&rs->tx.lock);
	if (end_arrived(rs))
		let_go(rs);
}

static void close_socket(struct rsocket *rs);

/* Connections that were never accepted end as if they had been closed. */
static void stop_listening(struct rsocket *rs)
{
	struct rsocket *connection;

	pthread_mutex_lock(&rs->control);
	rs_unserve(rs);
	pthread_mutex_unlock(&rs->control);
	while ((connection = rs_next_connection(rs)))
		close_socket(connection);
}

/* Ends the socket, whose descriptor's reference this takes. */
static void close_socket(struct rsocket *rs)
{
	const struct linger *linger = &rs->options.linger;

	nupa_store_release(&rs->closing, 1);
	if (!rs_is_inherited(rs)) {
		if (nupa_load_acquire(&rs->serve))
			stop_listening(rs);
		if (is_connected(rs) && !rs->datagrams &&
		    !finish(rs,
			    linger->l_onoff ? linger->l_linger * 1000 * RS_NS_PER_MS : CLOSE_NS) &&
		    !linger->l_onoff && rs_serve(rs, rs->fd, go_on_closing) == 0) {
			nupa_store_release(&rs->closed, 1);
			rs_notify(rs);
			go_on_closing(rs); /* events from before it was watched */
			return;
		}
	}
	let_go(rs);
}

int rshutdown(int socket, int how)
{
	struct rsocket *rs = rs_get(socket);
	int result = 0;

	if (!rs)
		return -1;
	if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) {
		result = RS_ERROR(EINVAL);
	} else if (nupa_load_acquire(&rs->state) == RS_LISTENING && how != SHUT_WR) {
		stop_listening(rs);
		nupa_store_release(&rs->state, RS_INIT);
	} else if (!is_connected(rs) && !rs->datagrams) {
		result = RS_ERROR(ENOTCONN);
	} else {
		if (how != SHUT_WR)
			nupa_store_release(&rs->read_shut, 1);
		if (how != SHUT_RD)
			nupa_store_release(&rs->write_shut, 1);
		if (how != SHUT_RD && !rs->datagrams)
			result = end_stream(rs, rs_deadline(SHUTDOWN_NS));
	}
	rs_notify(rs);
	rs_put(rs);
	return result;
}

int rclose(int socket)
{
	struct rsocket *rs = rs_get_quietly(socket);

	if (!rs)
		return rs_repoll_close(socket) ? 0 : RS_ERROR(EBADF);
	if (nupa_exchange_seq(&rs->closing, 1)) {
		rs_put(rs);
		return RS_ERROR(EBADF);
	}
	close_socket(rs);
	rs_put(rs);
	return 0;
}

/* At the program's end.  Other threads may hold anything, so it waits for none of their locks. */
static void leave(struct rsocket *rs)
{
	if (!is_connected(rs) || rs->datagrams || pthread_mutex_trylock(&rs->tx.lock))
		return;
	post_end(rs);
	pthread_mutex_unlock(&rs->tx.lock);
}

static void await_left(struct rsocket *rs, int64_t deadline_ns)
{
	if (is_connected(rs) && rs->end_posted && !end_arrived(rs))
		rs_wait_closed(rs, end_arrived, deadline_ns);
}

/* A program that ends without closing: its peers get the data sent, and the end. */
__attribute__((destructor)) static void end_streams_at_exit(void)
{
	int64_t deadline_ns = rs_deadline(LEAVE_NS);
	const struct nupa_list *live = rs_lock_live();

	for (struct nupa_list *at = live->next; at != live; at = at->next)
		leave(container_of(at, struct rsocket, live_link));
	for (struct nupa_list *at = live->next; at != live; at = at->next)
		await_left(container_of(at, struct rsocket, live_link), deadline_ns);
	rs_unlock_live();
}
