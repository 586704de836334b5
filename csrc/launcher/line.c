// SPDX-License-Identifier: BSD-3-Clause
/* The command line: plain are `nupa run`, --fabric and --host once each, and the program. */
#include "launcher/launcher.h"

#include <string.h>

/* Whether *word* is the option, as two words or as one with '='; *value* is behind it, or NULL. */
static bool is_option(const char *word, const char *option, const char **value)
{
	const size_t length = strlen(option);

	if (strncmp(word, option, length) != 0)
		return false;
	*value = word[length] == '=' ? word + length + 1 : NULL;
	return *value || !word[length];
}

bool nupa_line_read(char **argv, struct nupa_line *line)
{
	char **word = argv + 1;
	const char *value, **into;

	if (!*word || strcmp(*word, "run") != 0)
		return false;
	for (word++; *word && (*word)[0] == '-'; word++) {
		if (!strcmp(*word, "--")) {
			word++;
			break;
		}
		if (is_option(*word, "--fabric", &value))
			into = &line->fabric;
		else if (is_option(*word, "--host", &value))
			into = &line->host;
		else
			return false;
		if (!value)
			value = *++word;
		if (*into || !value || !*value || *value == '-')
			return false;
		*into = value;
	}
	line->command = word;
	return *word && **word && (!line->fabric || nupa_name_is_valid(line->fabric));
}
