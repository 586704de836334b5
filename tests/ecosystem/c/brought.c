/* SPDX-License-Identifier: BSD-3-Clause
 * A libibverbs that a program brings and that sees no device; and, -DUSER, a library linked with
 * it.  `own_devices` calls it. */
#include <stddef.h>

void **ibv_get_device_list(int *n);
void ibv_free_device_list(void **list);
int own_devices(void);

#ifdef USER
int own_devices(void)
{
	int n = -1;

	ibv_free_device_list(ibv_get_device_list(&n));
	return n;
}
#else
void **ibv_get_device_list(int *n)
{
	static void *none;

	*n = 0;
	return &none;
}

void ibv_free_device_list(void **list)
{
	(void)list;
}
#endif
