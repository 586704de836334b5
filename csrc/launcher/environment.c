// SPDX-License-Identifier: BSD-3-Clause
/* The program's environment, as environment() in nupa/cli/run/program.py makes it. */
#include "launcher/launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADDED_MAX 8u   /* variables, and the end */
#define ADDED_PARTS 4u /* and the end */

struct variables {
	char **at;
	size_t n;
	bool failed;
};

/* The place of KEY or KEY=..., or n. */
static size_t find(const struct variables *env, const char *key)
{
	const size_t length = strcspn(key, "=");
	size_t i = 0;

	while (i < env->n && (strncmp(env->at[i], key, length) != 0 || env->at[i][length] != '='))
		i++;
	return i;
}

static const char *get(const struct variables *env, const char *key)
{
	const size_t i = find(env, key);

	return i < env->n ? env->at[i] + strlen(key) + 1 : "";
}

static void set(struct variables *env, const char *key, const char *value)
{
	const size_t i = find(env, key);
	char *text;

	if (asprintf(&text, "%s=%s", key, value) < 0) {
		env->failed = true;
		return;
	}
	env->at[i] = text;
	env->n += i == env->n;
}

static void drop(struct variables *env, const char *key)
{
	const size_t i = find(env, key);

	if (i < env->n)
		memmove(&env->at[i], &env->at[i + 1], (--env->n - i) * sizeof(*env->at));
}

/* Part of a list with ':', and its length. */
struct part {
	const char *at;
	size_t length;
};

static bool is(struct part part, const char *other)
{
	return other && strlen(other) == part.length && !memcmp(part.at, other, part.length);
}

static void append_part(char *list, struct part part)
{
	const size_t length = strlen(list);

	sprintf(list + length, "%s%.*s", length ? ":" : "", (int)part.length, part.at);
}

static void append(char *list, const char *text)
{
	if (text)
		append_part(list, (struct part){ text, strlen(text) });
}

/* Puts *first* and *second* before the variable's list and *last* behind it, each unless NULL.
 * Parts that are empty (the current folder, ld.so(8)), and those of a `nupa run` around this one
 * go. */
static void surround(struct variables *env, const struct nupa_place *place, const char *key,
		     const char *first, const char *second, const char *last)
{
	struct part part = { .at = get(env, key) };
	char *list = calloc(1, strlen(part.at) + ADDED_PARTS * (PATH_MAX + 1));

	if (!list) {
		env->failed = true;
		return;
	}
	append(list, first);
	append(list, second);
	for (bool more = true; more; part.at += part.length + 1) {
		part.length = strcspn(part.at, ":");
		more = part.at[part.length] != '\0';
		if (part.length && !is(part, first) && !is(part, second) &&
		    !is(part, place->shim) && !is(part, place->verbs) && !is(part, place->rdmacm))
			append_part(list, part);
	}
	append(list, last);
	set(env, key, list);
	free(list);
}

/* As os.environ has it: words without '=' are left out, and the first of a name counts. */
static bool copy(struct variables *env, char **ours)
{
	size_t n = 0;

	while (ours[n])
		n++;
	env->at = calloc(n + ADDED_MAX, sizeof(*env->at));
	for (size_t i = 0; env->at && i < n; i++) {
		if (ours[i][0] == '=')
			return false; /* a variable without a name */
		if (strchr(ours[i], '=') && find(env, ours[i]) == env->n)
			env->at[env->n++] = ours[i];
	}
	return env->at != NULL;
}

char **nupa_environment(char **ours, const struct nupa_place *place, const struct nupa_lease *lease,
			bool any_host)
{
	struct variables env = { 0 };
	bool drop_in;

	if (!copy(&env, ours))
		return NULL;
	set(&env, "NUPA_FABRIC", lease->path);
	set(&env, "NUPA_HOST", lease->host);
	drop(&env, "NUPA_MOVER");
	drop(&env, "NUPA_LOOPBACK");
	surround(&env, place, "LD_LIBRARY_PATH", place->lib, NULL, NULL);
	surround(&env, place, "TSAN_OPTIONS", "ignore_noninstrumented_modules=1", NULL, NULL);
	drop_in = strcmp(get(&env, "NUPA_PRELOAD"), "0") != 0;
	surround(&env, place, "LD_PRELOAD", drop_in ? place->verbs : NULL,
		 drop_in ? place->rdmacm : NULL, place->shim);
	surround(&env, place, "ASAN_OPTIONS", "verify_asan_link_order=0", NULL, NULL);
	if (any_host)
		set(&env, "NUPA_LOOPBACK", "machine");
	return env.failed ? NULL : env.at;
}
