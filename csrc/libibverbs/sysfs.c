/* SPDX-License-Identifier: BSD-3-Clause
 * Helpers of libibverbs for tools and librdmacm: files of sysfs, the type of a GID as sysfs words
 * it, the Ethernet address behind a GID. */
#include "engine/device/device.h"
#include "libibverbs/symver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NUPA_NO_VLAN 0xffffu

static char sysfs_path[IBV_SYSFS_PATH_MAX] = "/sys";

/* SYSFS_PATH may move it, unless the program runs with another user's rights. */
__attribute__((constructor)) static void choose_sysfs_path(void)
{
	const char *moved = secure_getenv("SYSFS_PATH");
	size_t length = moved ? strlen(moved) : 0;

	while (length > 0 && moved[length - 1] == '/')
		length--;
	if (length > 0 && length < sizeof(sysfs_path)) {
		memcpy(sysfs_path, moved, length);
		sysfs_path[length] = '\0';
	}
}

const char *ibv_get_sysfs_path(void)
{
	return sysfs_path;
}

/* Bytes read, without the last newline and with a NUL behind them; -1 with errno. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[2 * IBV_SYSFS_PATH_MAX];
	int written = snprintf(path, sizeof(path), "%s/%s", dir, file);
	ssize_t got;
	int fd;

	if (written < 0 || (size_t)written >= sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	got = read(fd, buf, size);
	close(fd);
	if (got <= 0)
		return (int)got;
	if (buf[got - 1] == '\n')
		got--;
	if ((size_t)got == size) { /* no place for the NUL */
		errno = EOVERFLOW;
		return -1;
	}
	buf[got] = '\0';
	return (int)got;
}

enum ibv_gid_type_sysfs { IBV_GID_TYPE_SYSFS_IB_ROCE_V1 = 0, IBV_GID_TYPE_SYSFS_ROCE_V2 = 1 };

/* 0, or -1 with errno; an empty entry is of the first type. */
static int query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
			  enum ibv_gid_type_sysfs *type)
{
	struct ibv_gid_entry entry = { .gid_type = IBV_GID_TYPE_IB };
	int ret = nupa_query_gid_ex(context, port_num, index, &entry, 0, sizeof(entry));

	if (ret != 0 && ret != ENODATA) {
		errno = ret;
		return -1;
	}
	*type = ret == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? IBV_GID_TYPE_SYSFS_ROCE_V2
								   : IBV_GID_TYPE_SYSFS_IB_ROCE_V1;
	return 0;
}

NUPA_DRIVER_SYMBOL(query_gid_type, ibv_query_gid_type)

/* The fabric's host table takes the place of neighbour discovery.  0, or a negative
 * errno: -EHOSTUNREACH if no host of the fabric has the address. */
int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
				uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	const struct nupa_fabric *fabric = nupa_context_fabric(context);
	int host = nupa_host_of_gid(fabric, &attr->grh.dgid);

	if (host < 0)
		return -EHOSTUNREACH;
	memcpy(eth_mac, nupa_fabric_host(fabric, (uint32_t)host)->mac, ETHERNET_LL_SIZE);
	if (vid)
		*vid = NUPA_NO_VLAN;
	return 0;
}
