/* SPDX-License-Identifier: BSD-3-Clause
 * Two queue pairs of one process exchange 100 messages and all is given back: for tools that look
 * for mistakes. */
#include "rc.h"

int main(void)
{
	struct end from = { 0 }, to = { 0 };
	struct address address;

	end_open(&from);
	end_open(&to);
	end_make_qp(&from);
	end_make_qp(&to);
	address = end_address(&to);
	end_connect(&from, &address);
	address = end_address(&from);
	end_connect(&to, &address);
	for (int i = 1; i <= 100; i++) {
		size_t bytes = (size_t)i * 641;

		memset(from.memory, i, bytes);
		end_receive(&to, 0, bytes);
		end_send(&from, 0, bytes);
		MUST(end_wait(&from) == IBV_WC_SUCCESS);
		MUST(end_wait(&to) == IBV_WC_SUCCESS);
		MUST(!memcmp(from.memory, to.memory, bytes));
	}
	end_close(&from);
	end_close(&to);
	puts("100 exchanged");
	return 0;
}
