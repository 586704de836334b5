// SPDX-License-Identifier: BSD-3-Clause
/*
 * Parses a RUN frame: u32 flags, u16 rows, u16 columns, then words that end with NUL each: working
 * directory, number of arguments, arguments, environment.
 */
#include "guest/agent.h"

#include <stdlib.h>
#include <string.h>

struct run_head {
	uint32_t flags;
	uint16_t rows, columns;
};
_Static_assert(sizeof(struct run_head) == 8, "as on the wire");

/* The next word; NULL: no more. */
static char *next_word(char **at, char *end)
{
	char *word = *at;

	if (word == end)
		return NULL;
	*at += strlen(word) + 1; /* the last byte is NUL: it ends there */
	return word;
}

/* 1 to AGENT_WORDS_MAX; 0: not such a number. */
static size_t parse_count(const char *word)
{
	char *end;

	if (*word < '1' || *word > '9')
		return 0;
	unsigned long count = strtoul(word, &end, 10);
	return *end || count > AGENT_WORDS_MAX ? 0 : count;
}

bool order_parse(struct order *order, uint8_t *payload, size_t bytes)
{
	struct run_head head;

	if (bytes <= sizeof(head) || payload[bytes - 1])
		return false;
	memcpy(&head, payload, sizeof(head));
	if (head.flags & ~(uint32_t)RUN_TTY)
		return false;
	order->tty = head.flags & RUN_TTY;
	order->rows = head.rows;
	order->columns = head.columns;

	char *at = (char *)payload + sizeof(head), *end = (char *)payload + bytes;
	order->cwd = next_word(&at, end);
	const char *number = next_word(&at, end);
	size_t argc = number ? parse_count(number) : 0;
	if (!argc)
		return false;
	for (size_t i = 0; i < argc; i++) {
		order->argv[i] = next_word(&at, end);
		if (!order->argv[i])
			return false;
	}
	order->argv[argc] = NULL;

	size_t n = 0;
	for (char *word; (word = next_word(&at, end));) {
		if (n == AGENT_WORDS_MAX || !strchr(word, '='))
			return false;
		order->env[n++] = word;
	}
	order->env[n] = NULL;
	return true;
}
