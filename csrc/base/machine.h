/* SPDX-License-Identifier: BSD-3-Clause
 * The units of the machine's memory. */
#ifndef NUPA_MACHINE_H
#define NUPA_MACHINE_H

#define NUPA_CACHE_LINE_BYTES 64u
#define NUPA_PAGE_BYTES 4096u

#endif
