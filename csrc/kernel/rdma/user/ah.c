// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Address handles of processes, which their requests name by numbers.
 */
#include "kernel/rdma/user/user.h"

int user_create_ah_op(struct ib_ah *ib, struct rdma_ah_init_attr *init, struct ib_udata *udata)
{
	struct rdma_ah *ah = container_of(ib, struct rdma_ah, ib);
	struct xarray *handles = &device_of(ib->device)->handles;
	struct rxe_create_ah_resp answer = {};
	int error;

	if (udata->outlen < sizeof(answer))
		return -EINVAL;
	error = rdma_create_ah_op(ib, init, udata);
	if (error)
		return error;
	error = xa_alloc_irq(handles, &ah->number, ah, XA_LIMIT(1, U16_MAX), GFP_KERNEL);
	answer.ah_num = ah->number;
	if (!error)
		error = ib_copy_to_udata(udata, &answer, sizeof(answer));
	if (error)
		rdma_destroy_ah_op(ib, 0);
	return error;
}

void user_forget_ah(struct rdma_ah *ah)
{
	struct xarray *handles = &device_of(ah->ib.device)->handles;
	unsigned long flags;

	if (!ah->number)
		return;
	xa_lock_irqsave(handles, flags);
	__xa_erase(handles, ah->number);
	xa_unlock_irqrestore(handles, flags);
}
