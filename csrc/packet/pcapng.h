/* SPDX-License-Identifier: BSD-3-Clause
 * Finds the packets in a piece of a pcapng or pcap file, and writes some of them to a pcapng file.
 * This is the work done once for each packet.  nupa/packet/pcapng/reader.py has the rest of the
 * format. */
#ifndef NUPA_PACKET_PCAPNG_H
#define NUPA_PACKET_PCAPNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
/* An interface's timestamps: ns = ticks * ns_mul / ns_div + offset_s * 10^9. */
struct nupa_pcapng_interface {
	uint64_t ns_mul;
	uint64_t ns_div;
	int64_t offset_s;
	uint32_t snaplen; /* 0: no limit */
	uint32_t pad;
};

/* A packet.  Offsets are in the piece that was scanned. */
struct nupa_pcapng_record {
	uint64_t ts_ns;     /* since 1970; 0 where the block has none */
	uint64_t packet_id; /* epb_packetid; 0: none */
	uint64_t drops;     /* epb_dropcount: since the packet before; 0 also where it is absent */
	uint32_t offset;    /* of its data */
	uint32_t captured_bytes;
	uint32_t original_bytes;
	uint32_t interface;
	uint32_t flags; /* epb_flags: bits 0 and 1 are the direction */
	uint32_t
	    options_offset; /* of the options, if there are others than the three above; else 0 */
	uint32_t options_bytes;
	uint32_t pad;
};

/* Scans the blocks of `data` for packets, from *place on.  It ends at the first block of another
 * type, the first incomplete one, or `max` packets.  `swapped`: of the other endianness.  Returns
 * the number of packets; *place is where the scan ended.  At an invalid block *why says so and
 * *place is its place; else *why is NULL. */
uint32_t nupa_pcapng_scan(const uint8_t *data, size_t bytes, bool swapped,
			  const struct nupa_pcapng_interface *interfaces, uint32_t n_interfaces,
			  struct nupa_pcapng_record *records, uint32_t max, size_t *place,
			  const char **why);

/* The same for the packets of a classic pcap file, which have one interface.  Its ns_mul is the
 * unit of the fraction of a second, 1000 or 1. */
uint32_t nupa_pcap_scan(const uint8_t *data, size_t bytes, bool swapped,
			const struct nupa_pcapng_interface *interfaces, uint32_t n_interfaces,
			struct nupa_pcapng_record *records, uint32_t max, size_t *place,
			const char **why);

/* Writes packets of `data` as blocks, little endian and with times in ns: records[which[i]] for
 * each i of n.  A NULL `which` takes the first n.  `numbers[i]` is the number of interface i, of
 * n_interfaces, in the new file; `snaplens[i]` is its snap length.  `swapped`: the options in
 * `data` are of the other endianness.  Returns the number written, less than n if there is no more
 * room or if *why names the defect of the next one.  The bytes of `out` that it has written are
 * *used. */
uint32_t nupa_pcapng_format(const uint8_t *data, size_t bytes, bool swapped,
			    const struct nupa_pcapng_record *records, uint32_t n_records,
			    const uint32_t *which, uint32_t n, const uint32_t *numbers,
			    const uint32_t *snaplens, uint32_t n_interfaces, uint8_t *out,
			    size_t room, size_t *used, const char **why);
/* cffi: end */

#define NUPA_PCAPNG_BLOCK_BYTES_MAX (16u << 20)

#endif
