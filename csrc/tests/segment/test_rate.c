/* SPDX-License-Identifier: BSD-3-Clause
 * The nominal rate of a link: the next lower width and speed of InfiniBand. */
#include "segment/rate.h"
#include "tests/support/runner.h"

#include <string.h>

static struct nupa_port_rate rate_of(uint32_t lanes, uint32_t speed_mtps)
{
	const struct nupa_port port = { .width_lanes = lanes, .speed_mtps = speed_mtps };

	return nupa_port_rate(&port);
}

TEST(each_speed_stands_for_links_from_its_own_on)
{
	static const struct {
		uint32_t mtps, mbps;
		uint8_t bit; /* IBTA 14.2.5.6, LinkSpeedActive */
		const char *name;
	} speeds[] = {
		{ 1, 2500, 1, "SDR" },          { 4999, 2500, 1, "SDR" },
		{ 5000, 5000, 2, "DDR" },       { 9999, 5000, 2, "DDR" },
		{ 10000, 10000, 8, "FDR10" },   { 13999, 10000, 8, "FDR10" },
		{ 14000, 14000, 16, "FDR" },    { 24999, 14000, 16, "FDR" },
		{ 25000, 25000, 32, "EDR" },    { 49999, 25000, 32, "EDR" },
		{ 50000, 50000, 64, "HDR" },    { 99999, 50000, 64, "HDR" },
		{ 100000, 100000, 128, "NDR" }, { UINT32_MAX, 100000, 128, "NDR" },
	};

	for (uint32_t i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++) {
		const struct nupa_port_rate rate = rate_of(1, speeds[i].mtps);

		CHECK_EQ(rate.mbps, speeds[i].mbps);
		CHECK_EQ(rate.speed, speeds[i].bit);
		CHECK(!strcmp(rate.name, speeds[i].name));
	}
}

TEST(each_width_stands_for_links_from_its_own_on)
{
	static const uint32_t widths[][3] = {
		/* lanes, those that count, LinkWidthActive */
		{ 0, 1, 1 }, { 1, 1, 1 },  { 2, 2, 16 },  { 3, 2, 16 },  { 4, 4, 2 },  { 7, 4, 2 },
		{ 8, 8, 4 }, { 11, 8, 4 }, { 12, 12, 8 }, { 16, 12, 8 }, { 32, 12, 8 }
	};

	for (uint32_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
		const struct nupa_port_rate rate = rate_of(widths[i][0], 32000);

		CHECK_EQ(rate.lanes, widths[i][1]);
		CHECK_EQ(rate.width, widths[i][2]);
		CHECK_EQ(rate.mbps, widths[i][1] * 25000);
	}
}
