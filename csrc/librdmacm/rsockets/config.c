/* SPDX-License-Identifier: BSD-3-Clause
 * The defaults of an rsocket: this library's, or the administrator's (man rsocket(7)). */
#include "librdmacm/rsockets/internal.h"

#include <stdio.h>

#define CONFIG_DIR "/etc/rdma/rsocket/"

static struct rs_defaults defaults = {
	.rcvbuf = 512 << 10,
	.sndbuf = 256 << 10,
	.sq_size = 256,
	.rq_size = 384,
	.inline_bytes = 256,
	.iomap_size = 0,
	.spin_ns = 20000,
	.wake_up_max_ms = 5000,
};

/* A file that is missing, or holds no number in range, changes nothing. */
static int64_t setting(const char *path, int64_t otherwise, int64_t least, int64_t most)
{
	long long value;
	FILE *file = fopen(path, "re");

	if (!file)
		return otherwise;
	if (fscanf(file, "%lld", &value) != 1 || value < least || value > most)
		value = otherwise;
	fclose(file);
	return value;
}

static void read_settings(void)
{
	struct rs_defaults *d = &defaults;

	d->rcvbuf = (int)setting(CONFIG_DIR "mem_default", d->rcvbuf, 1, INT32_MAX);
	d->sndbuf = (int)setting(CONFIG_DIR "wmem_default", d->sndbuf, 1, INT32_MAX);
	d->sq_size = (int)setting(CONFIG_DIR "sqsize_default", d->sq_size, 1, UINT16_MAX);
	d->rq_size = (int)setting(CONFIG_DIR "rqsize_default", d->rq_size, 1, UINT16_MAX);
	d->inline_bytes = (int)setting(CONFIG_DIR "inline_default", d->inline_bytes, 0, UINT16_MAX);
	d->iomap_size = (int)setting(CONFIG_DIR "iomap_size", d->iomap_size, 0, UINT16_MAX);
	d->spin_ns = 1000 * setting(CONFIG_DIR "polling_time", d->spin_ns / 1000, 0, 1000000);
	d->wake_up_max_ms =
	    (int)setting(CONFIG_DIR "wake_up_interval", d->wake_up_max_ms, 1, INT32_MAX);
}

const struct rs_defaults *rs_defaults(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_settings);
	return &defaults;
}
