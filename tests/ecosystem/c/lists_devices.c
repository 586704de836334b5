/* SPDX-License-Identifier: BSD-3-Clause
 * Writes what the linked libibverbs sees and, -DCM, the linked librdmacm. */
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>

int main(void)
{
	int n = -1;
	struct ibv_device **list = ibv_get_device_list(&n);

	printf("%s\n", list && n == 1 ? list[0]->name : "none");
#ifdef CM
	struct ibv_context **contexts = rdma_get_devices(&n);

	printf("%s\n", contexts && n == 1 ? contexts[0]->device->name : "none");
	rdma_free_devices(contexts);
#endif
	if (list)
		ibv_free_device_list(list);
	return 0;
}
