/* SPDX-License-Identifier: BSD-3-Clause
 * Management datagrams (IBTA 13 to 16): a MAD goes into a fabric and comes back answered, or says
 * which host's agents it is for.
 *
 *   send.c      where a MAD goes, and who answers it
 *   smi.c       directed routes, and reachability of LIDs
 *   node.c      hosts and switches as nodes with LIDs, GUIDs and numbered ports
 *   sma.c       the subnet management agent: the table of its attributes
 *   port_info.c PortInfo, which also takes ports up and down
 *   switch.c    SwitchInfo and forwarding tables
 *   pma.c       the performance management agent
 *   traffic.c   the counters of any port, as `nupa show` has them
 *   subnet.c    what a subnet manager has set, shared by all processes
 *
 * Every byte of a MAD is hostile. */
#ifndef NUPA_MAD_H
#define NUPA_MAD_H

#include "base/fields.h"
#include "mad/subnet.h"
#include "segment/segment.h"

#define NUPA_MAD_BYTES 256u
#define NUPA_MAD_HEADER_BYTES 24u
#define NUPA_MAD_HOPS_MAX 63u
#define NUPA_LID_PERMISSIVE 0xffffu

enum nupa_mad_class {
	NUPA_MAD_SUBN_LID = 0x01,
	NUPA_MAD_SUBN_ADM = 0x03,
	NUPA_MAD_PERF = 0x04,
	NUPA_MAD_SUBN_DIRECTED = 0x81,
};

enum nupa_mad_method {
	NUPA_MAD_GET = 0x01,
	NUPA_MAD_SET = 0x02,
	NUPA_MAD_TRAP_REPRESS = 0x07,
	NUPA_MAD_RESPONSE = 0x80, /* the bit of all responses */
	NUPA_MAD_GET_RESPONSE = 0x81,
};

/* Bytes of the header; those of directed routes: IBTA 14.2.1.2. */
enum nupa_mad_at {
	NUPA_MAD_AT_BASE_VERSION = 0,
	NUPA_MAD_AT_CLASS = 1,
	NUPA_MAD_AT_CLASS_VERSION = 2,
	NUPA_MAD_AT_METHOD = 3,
	NUPA_MAD_AT_STATUS = 4,
	NUPA_MAD_AT_HOP_POINTER = 6,
	NUPA_MAD_AT_HOP_COUNT = 7,
	NUPA_MAD_AT_TID = 8,
	NUPA_MAD_AT_ATTRIBUTE = 16,
	NUPA_MAD_AT_MODIFIER = 20,
	NUPA_MAD_AT_DR_SLID = 32,
	NUPA_MAD_AT_DR_DLID = 34,
	NUPA_MAD_AT_DATA = 64, /* of SMPs, and of performance management */
	NUPA_MAD_AT_INITIAL_PATH = 128,
	NUPA_MAD_AT_RETURN_PATH = 192,
};
#define NUPA_MAD_DIRECTION 0x8000u /* of the status of a directed route: it returns */

/* IBTA 13.4.7. */
enum nupa_mad_status {
	NUPA_MAD_OK = 0,
	NUPA_MAD_BAD_VERSION = 0x04,
	NUPA_MAD_NO_METHOD = 0x08,
	NUPA_MAD_NO_ATTRIBUTE = 0x0c,
	NUPA_MAD_INVALID = 0x1c,
};

enum nupa_mad_fate {
	NUPA_MAD_LOST,     /* nobody gets it: a path without link, or no such LID */
	NUPA_MAD_ANSWERED, /* the MAD is the answer now */
	NUPA_MAD_DELIVER,  /* it is for the agents of a host */
};

struct nupa_mad_target {
	uint16_t lid;
	const uint8_t *gid; /* NULL: by LID */
};

/* Sends a MAD from a host's port.  DELIVER: *host. */
enum nupa_mad_fate nupa_mad_send(struct nupa_subnet *subnet, uint32_t from,
				 const struct nupa_mad_target *to, uint8_t mad[NUPA_MAD_BYTES],
				 uint32_t *host);

/* --- node.c ------------------------------------------------------------------------------------
 */

struct nupa_node {
	bool is_switch;
	uint32_t index; /* of the host or switch */
};

uint32_t nupa_node_switches(const struct nupa_fabric *fabric);
uint32_t nupa_node_n_ports(const struct nupa_fabric *fabric, struct nupa_node node);
/* The port by its number, in the table of ports; -ENOENT: there is none, as port 0 of a switch. */
int nupa_node_port(const struct nupa_fabric *fabric, struct nupa_node node, uint32_t number);
struct nupa_node nupa_node_of_port(const struct nupa_fabric *fabric, uint32_t port);
uint8_t nupa_node_port_number(const struct nupa_fabric *fabric, uint32_t port);
/* Hosts have those of `nupa show`; switches the next ones, by their numbers. */
uint16_t nupa_node_lid(const struct nupa_fabric *fabric, struct nupa_node node);
int nupa_node_of_lid(const struct nupa_fabric *fabric, uint16_t lid, struct nupa_node *node);
uint64_t nupa_node_guid(const struct nupa_fabric *fabric, struct nupa_node node);
void nupa_node_name(const struct nupa_fabric *fabric, struct nupa_node node, char *text,
		    size_t bytes);
/* Both ends of the link are up. */
bool nupa_node_linked(const struct nupa_fabric *fabric, uint32_t port);

/* --- smi.c -------------------------------------------------------------------------------------
 */

/* Walks the initial path, and writes the return path: the node at its end and the number of the
 * port by which it came.  -ENETUNREACH: it ends before. */
int nupa_smi_forward(const struct nupa_fabric *fabric, struct nupa_node from, uint8_t *smp,
		     struct nupa_node *at, uint8_t *in_port);
/* Walks the return path from the node that answers. */
int nupa_smi_return(const struct nupa_fabric *fabric, struct nupa_node from, const uint8_t *smp,
		    struct nupa_node *at);
bool nupa_smi_reaches(const struct nupa_fabric *fabric, uint32_t host, struct nupa_node node);

/* --- the agents: the MAD becomes the answer ----------------------------------------------------
 */

/* A request at its node. */
struct nupa_mad_request {
	struct nupa_subnet *subnet;
	struct nupa_node node;
	uint8_t in_port;
	bool set;
	uint32_t modifier;
	uint8_t *data; /* the attribute, 64 bytes; of performance management 192 */
};
/* The status, an enum nupa_mad_status. */
typedef uint16_t nupa_mad_answer(const struct nupa_mad_request *request);

void nupa_sma_answer(struct nupa_subnet *subnet, struct nupa_node node, uint8_t in_port,
		     uint8_t *mad);
void nupa_pma_answer(struct nupa_subnet *subnet, struct nupa_node node, uint8_t *mad);
nupa_mad_answer nupa_sma_port_info, nupa_sma_switch_info, nupa_sma_linear_table,
    nupa_sma_multicast_table;
/* PortInfo.CapabilityMask of a host's port. */
uint32_t nupa_sma_cap_mask(const struct nupa_subnet *subnet, uint32_t host);

/* --- traffic.c ---------------------------------------------------------------------------------
 */

struct nupa_traffic {
	uint64_t xmit_bytes, xmit_packets, rcv_bytes, rcv_packets, xmit_wait, xmit_discards;
};
/* All that ever passed the port. */
void nupa_port_traffic(struct nupa_fabric *fabric, uint32_t port, struct nupa_traffic *sum);

#endif
