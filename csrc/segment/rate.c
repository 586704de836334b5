/* SPDX-License-Identifier: BSD-3-Clause
 * Widths and speeds of InfiniBand, the highest first. */
#include "segment/rate.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

struct nupa_port_rate nupa_port_rate(const struct nupa_port *port)
{
	static const struct {
		uint32_t lanes;
		uint8_t bit;
	} widths[] = { { 12, 8 }, { 8, 4 }, { 4, 2 }, { 2, 16 }, { 1, 1 } };
	/* The rate of a lane, as the kernel's `rate` has it, and the link that it stands for. */
	static const struct {
		uint32_t from_mtps, mbps;
		uint8_t bit;
		char name[6];
	} speeds[] = {
		{ 100000, 100000, 128, "NDR" }, { 50000, 50000, 64, "HDR" },
		{ 25000, 25000, 32, "EDR" },    { 14000, 14000, 16, "FDR" },
		{ 10000, 10000, 8, "FDR10" },   { 5000, 5000, 2, "DDR" },
		{ 0, 2500, 1, "SDR" },
	};
	uint32_t w = 0, s = 0;
	struct nupa_port_rate rate;

	while (w + 1 < COUNT(widths) && port->width_lanes < widths[w].lanes)
		w++;
	while (s + 1 < COUNT(speeds) && port->speed_mtps < speeds[s].from_mtps)
		s++;
	rate = (struct nupa_port_rate){
		.lanes = widths[w].lanes,
		.mbps = widths[w].lanes * speeds[s].mbps,
		.width = widths[w].bit,
		.speed = speeds[s].bit,
	};
	__builtin_memcpy(rate.name, speeds[s].name, sizeof(rate.name));
	return rate;
}
