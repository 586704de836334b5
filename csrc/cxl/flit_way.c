/* SPDX-License-Identifier: BSD-3-Clause
 * What each component on the way does with flits. */
#include "cxl/flit_way.h"

#include "cxl/bus.h"

#include <errno.h>
#include <string.h>

#define LINE_MASK (~(uint64_t)(CXL_LINE_BYTES - 1))

/* CXL 3.1 3.3.5, 3.3.6, 3.3.9, 3.3.10. */
enum { MEM_INV = 0, MEM_RD = 1, MEM_RD_DATA = 2, MEM_INV_NT = 9, MEM_WR = 1, MEM_WR_PTL = 2 };
enum { MEM_DATA = 0, MEM_DATA_NXM = 1 };
#define META_NO_OP 3

static bool is_read(const struct nupa_cxl_message *message)
{
	return message->channel == NUPA_CXL_M2S_REQ &&
	       (message->opcode == MEM_RD || message->opcode == MEM_RD_DATA);
}

static bool is_answered(const struct nupa_cxl_message *message)
{
	if (message->channel == NUPA_CXL_M2S_RWD)
		return message->opcode == MEM_WR || message->opcode == MEM_WR_PTL;
	return is_read(message) || (message->channel == NUPA_CXL_M2S_REQ &&
				    (message->opcode == MEM_INV || message->opcode == MEM_INV_NT));
}

static size_t counter_of(const struct nupa_cxl_message *message)
{
	if (message->channel == NUPA_CXL_M2S_REQ)
		return BUS_READS;
	return message->opcode == MEM_WR ? BUS_WRITES : BUS_PARTIAL_WRITES;
}

static uint8_t links_of(const struct nupa_cxl_place *place)
{
	return (uint8_t)((place->n_hops + 1) / 2);
}

uint32_t nupa_flit_format_of(const struct nupa_flit_run *run, uint32_t links, uint32_t link)
{
	return run->pids && link && link + 1 < links ? NUPA_FLIT_PBR : run->format;
}

/* Bytes of a flit on a link: ways are alike. */
static uint32_t bytes_on(const struct nupa_flit_run *run, uint32_t link)
{
	return nupa_flit_bytes(nupa_flit_format_of(run, run->n ? run->ways[0].links : 0, link));
}

int nupa_flit_plan(struct nupa_flit_run *run, const struct nupa_cxl_message *requests)
{
	struct nupa_cxl_place place;
	int links = 0;

	for (uint32_t i = 0; i < run->n; i++)
		if (!is_answered(&requests[i]) || run->format >= NUPA_FLIT_PBR)
			return -EOPNOTSUPP;
	bus_enter(run->bus);
	for (uint32_t i = 0; i < run->n; i++) {
		struct nupa_flit_way *way = &run->ways[i];
		bool found = nupa_cxl_table_find(&run->bus->table, requests[i].address, &place);

		memset(way, 0, sizeof(*way));
		way->hpa = requests[i].address;
		way->tag = requests[i].tag;
		way->channel = is_read(&requests[i]) ? NUPA_CXL_S2M_DRS : NUPA_CXL_S2M_NDR;
		if (found)
			way->links = links_of(&place);
		else
			way->status = NUPA_CXL_NO_DECODER;
		if (!i)
			links = way->links;
		else if (links != way->links)
			links = -EXDEV;
	}
	bus_leave(run->bus);
	return links;
}

/* --- down -------------------------------------------------------------------------- */

/* What a component puts in for link `at`: of who asks for what, as links there name it. */
static uint32_t tag_down(const struct nupa_flit_run *run, struct nupa_flit_way *way, uint32_t at,
			 uint32_t device, struct nupa_cxl_message *message)
{
	uint32_t format = nupa_flit_format_of(run, way->links, at);

	message->spid = message->dpid = 0;
	if (format == NUPA_FLIT_PBR) {
		message->spid = way->spid = (uint16_t)(run->pids[device] >> 16);
		message->dpid = (uint16_t)run->pids[device];
	}
	if (at && at + 1 == way->links)
		message->ld_id = run->ld_ids[device];
	return format;
}

/* Onto link `at`: past the port that sends and the one that receives, if there is one. */
static int put_down(struct nupa_flit_run *run, struct nupa_flit_way *way, uint32_t at,
		    struct nupa_cxl_message *message, uint8_t *out)
{
	struct nupa_cxl_place place;

	if (!nupa_cxl_table_find(&run->bus->table, message->address, &place) || at >= way->links ||
	    links_of(&place) != way->links) {
		way->status = NUPA_CXL_NO_DECODER;
		return 0;
	}
	for (uint32_t i = 2 * at; i < place.n_hops && i < 2 * at + 2; i++)
		if (!bus_pass(run->bus, place.hops[i], counter_of(message))) {
			way->status = NUPA_CXL_LINK_DOWN;
			return 0;
		}
	way->at = (uint8_t)(at + 1);
	return nupa_flit_pack(tag_down(run, way, at, place.device, message), message, out);
}

int64_t nupa_flit_send(struct nupa_flit_run *run, const struct nupa_cxl_message *requests,
		       uint8_t *out, uint8_t *counts)
{
	uint32_t bytes = nupa_flit_bytes(run->format);
	int64_t total = 0;
	int n = 0;

	bus_enter(run->bus);
	for (uint32_t i = 0; i < run->n && n >= 0; i++) {
		struct nupa_cxl_message message = requests[i];

		n = put_down(run, &run->ways[i], 0, &message, out + total * bytes);
		counts[i] = (uint8_t)n;
		total += n;
	}
	bus_leave(run->bus);
	return n < 0 ? n : total;
}

/* Whether counts say as many flits as there are. */
static bool is_counted(const struct nupa_flit_run *run, const uint8_t *counts, uint64_t n_in)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < run->n; i++)
		total += counts[i];
	return total == n_in;
}

/* Flits that arrive at component `at`, from above or up from below: false, with the fault, if they
 * are refused. */
static bool take(struct nupa_flit_run *run, struct nupa_flit_way *way, uint32_t at, bool up,
		 const uint8_t *flits, uint32_t n, struct nupa_cxl_message *message)
{
	uint32_t format = nupa_flit_format_of(run, way->links, up ? at : at - 1);
	int fault = nupa_flit_unpack(format, up, flits, n, message, &run->corrected);

	if (fault) {
		way->fault = (uint8_t)fault;
		way->at = (uint8_t)at;
	}
	return !fault;
}

int64_t nupa_flit_forward(struct nupa_flit_run *run, uint32_t at, const uint8_t *in, uint64_t n_in,
			  const uint8_t *in_counts, uint8_t *out, uint8_t *counts)
{
	uint32_t in_bytes = bytes_on(run, at - 1), out_bytes = bytes_on(run, at);
	struct nupa_cxl_message message;
	int64_t total = 0;
	int n = 0;

	if (!at || !is_counted(run, in_counts, n_in))
		return -EINVAL;
	bus_enter(run->bus);
	for (uint32_t i = 0; i < run->n && n >= 0; i++) {
		struct nupa_flit_way *way = &run->ways[i];

		n = 0;
		if (in_counts[i] && take(run, way, at, false, in, in_counts[i], &message))
			n = put_down(run, way, at, &message, out + total * out_bytes);
		in += (uint64_t)in_counts[i] * in_bytes;
		counts[i] = (uint8_t)n;
		total += n;
	}
	bus_leave(run->bus);
	return n < 0 ? n : total;
}

/* --- the device -------------------------------------------------------------------- */

/* An answer of whoever has to give one, with what it has no data for. */
static void answer_without_data(const struct nupa_flit_way *way, struct nupa_cxl_message *answer)
{
	memset(answer, 0, sizeof(*answer));
	answer->tag = way->tag;
	answer->meta_field = META_NO_OP;
	answer->channel = way->channel;
	if (way->channel != NUPA_CXL_S2M_DRS)
		return;
	memset(answer->data, 0xFF, sizeof(answer->data));
	if (way->status == NUPA_CXL_NO_DECODER || way->status == NUPA_CXL_NO_MEMORY)
		answer->opcode = MEM_DATA_NXM;
	else
		answer->poison = 1;
}

/* Bytes of a line that are enabled. */
static void write_part(const struct bus_line *line, const struct nupa_cxl_message *message)
{
	struct bus_line byte = *line;

	for (uint32_t i = 0; i < CXL_LINE_BYTES; i++)
		if (message->byte_enables >> i & 1) {
			byte.offset = line->offset + i;
			bus_line_write(&byte, message->data + i, 1);
		}
}

static void write_line(const struct bus_line *line, const struct nupa_cxl_message *message)
{
	if (message->opcode == MEM_WR_PTL) {
		write_part(line, message);
	} else {
		bus_line_write(line, message->data, CXL_LINE_BYTES);
		if (message->poison)
			cxl_memory_poison_line(line->memory, line->offset, true);
	}
}

/* In the device's memory; what is read is in `data` if the status is good. */
static enum nupa_cxl_status serve_line(struct nupa_flit_run *run, struct nupa_flit_way *way,
				       const struct nupa_cxl_message *message, uint8_t *data)
{
	struct bus_line line;
	enum nupa_cxl_status status;

	if (!nupa_cxl_table_find(&run->bus->table, message->address & LINE_MASK, &line.place))
		return NUPA_CXL_NO_DECODER;
	if (message->ld_id != (links_of(&line.place) > 1 ? run->ld_ids[line.place.device] : 0)) {
		way->fault = NUPA_FLIT_LD;
		return NUPA_CXL_OK;
	}
	status = bus_line_find(run->bus, &line);
	if (status == NUPA_CXL_OK && is_read(message))
		status = bus_line_read(run->bus, &line, data, CXL_LINE_BYTES);
	else if (status == NUPA_CXL_OK && message->channel == NUPA_CXL_M2S_RWD)
		write_line(&line, message);
	return status;
}

static void serve(struct nupa_flit_run *run, struct nupa_flit_way *way,
		  const struct nupa_cxl_message *message, struct nupa_cxl_message *answer)
{
	uint8_t data[CXL_LINE_BYTES] = { 0 };

	way->status = (uint8_t)serve_line(run, way, message, data);
	if (way->fault)
		return;
	answer_without_data(way, answer);
	answer->tag = message->tag;
	answer->ld_id = message->ld_id;
	if (way->status == NUPA_CXL_OK && answer->channel == NUPA_CXL_S2M_DRS) {
		answer->opcode = MEM_DATA;
		answer->poison = 0;
		memcpy(answer->data, data, sizeof(data));
	}
}

int64_t nupa_flit_serve(struct nupa_flit_run *run, const uint8_t *in, uint64_t n_in,
			const uint8_t *in_counts, struct nupa_cxl_message *received,
			struct nupa_cxl_message *answers)
{
	uint32_t bytes = nupa_flit_bytes(run->format);
	int64_t total = 0;

	if (!is_counted(run, in_counts, n_in))
		return -EINVAL;
	bus_enter(run->bus);
	for (uint32_t i = 0; i < run->n; i++) {
		struct nupa_flit_way *way = &run->ways[i];

		answers[i].channel = received[i].channel = 0;
		if (in_counts[i] &&
		    take(run, way, way->links, false, in, in_counts[i], &received[i])) {
			serve(run, way, &received[i], &answers[i]);
			total++;
		}
		in += (uint64_t)in_counts[i] * bytes;
	}
	bus_leave(run->bus);
	return total;
}

/* --- up ---------------------------------------------------------------------------- */

int64_t nupa_flit_answer(struct nupa_flit_run *run, const struct nupa_cxl_message *answers,
			 uint8_t *out, uint8_t *counts)
{
	uint32_t bytes = nupa_flit_bytes(run->format);
	int64_t total = 0;

	for (uint32_t i = 0; i < run->n; i++) {
		int n = answers[i].channel
			    ? nupa_flit_pack(run->format, &answers[i], out + total * bytes)
			    : 0;

		if (n < 0)
			return n;
		counts[i] = (uint8_t)n;
		total += n;
	}
	return total;
}

/* What comes up to component `at`, or what it answers itself; false: nothing. */
static bool take_up(struct nupa_flit_run *run, struct nupa_flit_way *way, uint32_t at,
		    const uint8_t *flits, uint32_t n, struct nupa_cxl_message *message)
{
	if (n) {
		if (!take(run, way, at, true, flits, n, message))
			return false;
		if (message->tag != way->tag) {
			way->fault = NUPA_FLIT_TAG;
			way->at = (uint8_t)at;
			return false;
		}
		return true;
	}
	if (way->fault || way->at != at)
		return false;
	answer_without_data(way, message);
	return true;
}

/* Onto link `link`, up. */
static int put_up(const struct nupa_flit_run *run, const struct nupa_flit_way *way, uint32_t link,
		  struct nupa_cxl_message *message, uint8_t *out)
{
	uint32_t format = nupa_flit_format_of(run, way->links, link);

	message->ld_id = 0; /* which only the device's link has */
	message->dpid = format == NUPA_FLIT_PBR ? way->spid : 0;
	return nupa_flit_pack(format, message, out);
}

int64_t nupa_flit_return(struct nupa_flit_run *run, uint32_t at, const uint8_t *in, uint64_t n_in,
			 const uint8_t *in_counts, uint8_t *out, uint8_t *counts)
{
	uint32_t in_bytes = bytes_on(run, at), out_bytes = bytes_on(run, at - 1);
	struct nupa_cxl_message message;
	int64_t total = 0;

	if (!at || !is_counted(run, in_counts, n_in))
		return -EINVAL;
	for (uint32_t i = 0; i < run->n; i++) {
		int n = 0;

		if (take_up(run, &run->ways[i], at, in, in_counts[i], &message)) {
			n = put_up(run, &run->ways[i], at - 1, &message, out + total * out_bytes);
			if (n < 0)
				return n;
		}
		in += (uint64_t)in_counts[i] * in_bytes;
		counts[i] = (uint8_t)n;
		total += n;
	}
	return total;
}

int64_t nupa_flit_finish(struct nupa_flit_run *run, const uint8_t *in, uint64_t n_in,
			 const uint8_t *in_counts, struct nupa_cxl_message *answers)
{
	uint32_t bytes = nupa_flit_bytes(run->format);
	int64_t total = 0;

	if (!is_counted(run, in_counts, n_in))
		return -EINVAL;
	for (uint32_t i = 0; i < run->n; i++) {
		if (take_up(run, &run->ways[i], 0, in, in_counts[i], &answers[i]))
			total++;
		else
			answers[i].channel = 0;
		in += (uint64_t)in_counts[i] * bytes;
	}
	return total;
}
