/* SPDX-License-Identifier: BSD-3-Clause
 * Requests of a host on their way to devices and back, as flits, link by link: through the ports,
 * decoders and devices of a bus of transact.h, with the same statuses, counters and poison.
 *
 * Each call is what one component does with many requests: it takes flits from one link, checks and
 * unpacks them, does its part, and packs flits for the next.  Components are numbered along the
 * way: the host is 0, the switch behind link i is i + 1, and the device is `links`. */
#ifndef NUPA_CXL_FLIT_WAY_H
#define NUPA_CXL_FLIT_WAY_H

#include "cxl/flit.h"
#include "cxl/transact.h"

/* cffi: begin */
struct nupa_flit_way {
	uint64_t hpa;
	uint16_t tag;
	uint8_t channel; /* the answer's */
	uint8_t links;   /* 0: nobody decodes the address */
	uint8_t at;      /* the component that answers, or refuses what it received */
	uint8_t status;  /* enum nupa_cxl_status */
	uint8_t fault;   /* enum nupa_flit_fault: then there is no answer */
	uint8_t pad;
	uint16_t spid; /* where answers go between switches */
	uint16_t pads[3];
};

/* n requests whose ways have as many links. */
struct nupa_flit_run {
	struct nupa_cxl_bus *bus;
	const uint8_t *ld_ids; /* LD-ID of each of the bus' devices */
	/* spid << 16 | dpid of the way to each, which links between switches then have in PBR flits
	 * (CXL 3.1 7.7); NULL: they have flits of `format`, too. */
	const uint32_t *pids;
	struct nupa_flit_way *ways;
	uint32_t n;
	uint32_t format;    /* NUPA_FLIT_68, NUPA_FLIT_256 */
	uint32_t corrected; /* protocol IDs */
	uint32_t pad;
};

/* Begins: fills `ways`.  Returns how many links they have; -EXDEV: not all as many (the ways say
 * how many each has); -EOPNOTSUPP: requests whose answers are not modelled, or PBR flits, whose
 * ways are not. */
int nupa_flit_plan(struct nupa_flit_run *run, const struct nupa_cxl_message *requests);

/* What flits of a link are, if ways have so many: enum nupa_flit_format. */
uint32_t nupa_flit_format_of(const struct nupa_flit_run *run, uint32_t links, uint32_t link);

/* The others return how many flits they wrote; counts[i] of them are request i's, one behind the
 * other.  -EINVAL: a message that cannot be packed, or flits that are not as many as their counts
 * say. */

/* The host, onto link 0. */
int64_t nupa_flit_send(struct nupa_flit_run *run, const struct nupa_cxl_message *requests,
		       uint8_t *out, uint8_t *counts);
/* The switch that is component `at`, onto link `at`: it tags requests for a multi-logical device.
 */
int64_t nupa_flit_forward(struct nupa_flit_run *run, uint32_t at, const uint8_t *in, uint64_t n_in,
			  const uint8_t *in_counts, uint8_t *out, uint8_t *counts);
/* The device: what it received, and what it answers (channel 0: nothing). */
int64_t nupa_flit_serve(struct nupa_flit_run *run, const uint8_t *in, uint64_t n_in,
			const uint8_t *in_counts, struct nupa_cxl_message *received,
			struct nupa_cxl_message *answers);
/* The device, onto the last link, up. */
int64_t nupa_flit_answer(struct nupa_flit_run *run, const struct nupa_cxl_message *answers,
			 uint8_t *out, uint8_t *counts);
/* The switch that is component `at`, onto the link above, up: it answers what it stopped. */
int64_t nupa_flit_return(struct nupa_flit_run *run, uint32_t at, const uint8_t *in, uint64_t n_in,
			 const uint8_t *in_counts, uint8_t *out, uint8_t *counts);
/* The host: all answers. */
int64_t nupa_flit_finish(struct nupa_flit_run *run, const uint8_t *in, uint64_t n_in,
			 const uint8_t *in_counts, struct nupa_cxl_message *answers);
/* cffi: end */

#endif
