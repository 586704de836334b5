/* SPDX-License-Identifier: BSD-3-Clause
 * Names that programs are linked to and that rsocket*.c has not defined yet: weak, so that they
 * give way.  ENOSYS. */
#include <errno.h>

#define MISSING(name)                                                                              \
	__attribute__((weak)) long name(void);                                                     \
	__attribute__((weak)) long name(void)                                                      \
	{                                                                                          \
		errno = ENOSYS;                                                                    \
		return -1;                                                                         \
	}

MISSING(raccept)
MISSING(rbind)
MISSING(rclose)
MISSING(rconnect)
MISSING(rfcntl)
MISSING(rgetpeername)
MISSING(rgetsockname)
MISSING(rgetsockopt)
MISSING(riomap)
MISSING(riounmap)
MISSING(riowrite)
MISSING(rlisten)
MISSING(rpoll)
MISSING(rread)
MISSING(rreadv)
MISSING(rrecv)
MISSING(rrecvfrom)
MISSING(rrecvmsg)
MISSING(rselect)
MISSING(rsend)
MISSING(rsendmsg)
MISSING(rsendto)
MISSING(rsetsockopt)
MISSING(rshutdown)
MISSING(rsocket)
MISSING(rwrite)
MISSING(rwritev)
