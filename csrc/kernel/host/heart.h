/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 * heart.c: says that an attachment lives, and looks whether others do. */
#ifndef NUPA_KERNEL_HEART_H
#define NUPA_KERNEL_HEART_H

#include <linux/workqueue.h>

struct nupa_engine;

struct nupa_heart {
	struct nupa_engine *engine;
	struct delayed_work work;
};

void nupa_heart_start(struct nupa_heart *own, struct nupa_engine *engine);
void nupa_heart_stop(struct nupa_heart *own);

#endif
