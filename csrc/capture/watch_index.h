/* SPDX-License-Identifier: BSD-3-Clause
 * The packets of a watch, as records of a pcapng file.  Filters, columns and the writer of files
 * treat live packets like those of a file. */
#ifndef NUPA_WATCH_INDEX_H
#define NUPA_WATCH_INDEX_H

#include "packet/pcapng.h"
#include "capture/watch.h"

/* cffi: begin */
/* Options that stand in the buffer itself. */
struct nupa_watch_options {
	uint32_t offset;
	uint32_t bytes; /* 0: none */
};

/* Locates packets that nupa_watch_read has put into `data`, from *place up to `bytes`.  Returns how
 * many records it has filled, at most `max`, and moves *place to the next packet.
 *
 * `interfaces[2 * port]` is the number of a port's interface with link type Ethernet.
 * `interfaces[2 * port + 1]` is the number of its interface with NUPA's link type.  A packet is
 * left out if that number is ~0 (none), or if it does not lie in the buffer.
 *
 * `options[flags >> 2 & 255]` are for packets whose link type has no place for their flags. */
uint32_t nupa_watch_index(const uint8_t *data, size_t bytes, const uint32_t *interfaces,
			  uint32_t n_ports, const struct nupa_watch_options *options,
			  struct nupa_pcapng_record *records, uint32_t max, size_t *place);
/* cffi: end */

#endif
