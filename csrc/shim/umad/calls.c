/* SPDX-License-Identifier: BSD-3-Clause
 * ioctl on descriptors of umad0; netlink/calls.c has read and write, which it wraps as well. */
#define _GNU_SOURCE
/* The symbols themselves are defined here, not what headers make of their names. */
#undef _FORTIFY_SOURCE
#include "shim/umad.h"

#include "shim/call.h"
#include "shim/shim.h"

#include <rdma/rdma_user_ioctl.h>
#include <stdarg.h>
#include <sys/ioctl.h>

NUPA_SHIM_WRAPPER int ioctl(int fd, unsigned long request, ...)
{
	void *argument;
	va_list arguments;
	CALL(ioctl);

	/* Commands without an argument have one as well: any register. */
	va_start(arguments, request);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (_IOC_TYPE(request) == RDMA_IOCTL_MAGIC && nupa_umad_is_ours(fd))
		return nupa_umad_ioctl(fd, request, argument);
	return next(fd, request, argument);
}
